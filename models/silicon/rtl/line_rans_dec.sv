// rANS lanes of the decoder: 32 states, eight of them advanced per cycle.
//
// Equals the loop over steps of `parse` and `parse_row_classes`
// (models/codec/src/entropy/line/tile.rs). A step of 32 lanes is four beats of eight, given
// without a gap between them; each beat passes four stages (search, width,
// product, words), and the next step's beat of the same lanes may follow at
// once. Renewals take their words as beats pass. A step with escapes holds the
// stages for five cycles, in which the escapes take theirs first, as the stream
// orders them.
// Latency: 4 cycles. Throughput: 8 symbols/cycle; 8/9 of a step's cycles less
// where it has an escape.
module line_rans_dec (
    input  wire          clk,
    input  wire          rst,
    // Initial states, four lanes at a time.
    input  wire          load,
    input  wire [2:0]    load_at,
    // Trellis: 0 uniform, 1 four states, 2 eight.
    input  wire [1:0]    states_code,
    // Beats, with tables and raw bits of their lanes.
    input  wire          in_valid,
    input  wire [1:0]    in_group,
    input  wire [7:0]    in_mask,
    input  wire          in_rows,     // row classes: no quantizer, no raw bits, no tail
    input  wire          in_tail,     // symbols have no sign
    input  wire [1199:0] in_even,
    input  wire [1199:0] in_odd,
    input  wire [23:0]   in_raw_bits,
    input  wire [31:0]   in_side,     // passed through
    output wire          en,          // the stages move
    // Words.
    input  wire [127:0]  win,
    input  wire          win_ok,
    output wire [3:0]    take,
    output wire          take_go,     // late
    // Symbols.
    output reg           out_valid,
    output reg           out_rows,
    output reg  [31:0]   out_side,
    output reg  [151:0]  out_symbols, // 19 bits each: see line_tail
    output wire          idle,
    // Where lanes stand, while in_group is 0.
    output wire [511:0]  final_low,
    output wire          final_ok     // the upper half of every state is 1
);
    // Eight lanes each, turned by one with every cycle in which beats move: the
    // first are those of the beat that is searched, so nothing is selected.
    reg [255:0] states_0, states_1, states_2, states_3;
    reg [23:0]  trellis_0, trellis_1, trellis_2, trellis_3;

    // Search.
    wire [255:0] s1_states  = states_0;
    wire [23:0]  s1_trellis = trellis_0;
    wire [7:0]   s1_escape;
    // Width.
    reg          s2_valid, s2_rows, s2_tail;
    reg  [1:0]   s2_group;
    reg  [7:0]   s2_mask, s2_escape, s2_odd;
    reg  [31:0]  s2_side;
    reg  [23:0]  s2_raw_bits;
    // Product.
    reg          s3_valid, s3_rows, s3_tail;
    reg  [1:0]   s3_group;
    reg  [7:0]   s3_mask, s3_escape, s3_odd;
    reg  [31:0]  s3_side;
    reg  [23:0]  s3_raw_bits;
    wire [255:0] s3_states = states_2;
    // Words.
    reg          s4_valid, s4_rows, s4_tail;
    reg  [1:0]   s4_group;
    reg  [7:0]   s4_mask, s4_escape, s4_odd;
    reg  [31:0]  s4_side;
    reg  [23:0]  s4_raw_bits;

    // Escapes of a whole step are known when its last beat is searched, which is
    // when its first beat comes for words.
    reg          slow, slow_done;
    reg  [1:0]   slow_group;
    reg  [7:0]   last_escape;
    reg  [127:0] escapes [0:3];
    wire         step_escapes = |(s1_escape & in_mask) || |s2_escape || |s3_escape || |s4_escape;
    wire         hold   = s4_valid && s4_group == 2'd0 && !slow_done && (slow || step_escapes);
    wire         words  = s4_valid && !win_ok;
    wire         moves  = !hold && !words;
    assign       en     = moves && !load;
    wire         slow_go = slow && win_ok;
    wire [7:0]   slow_want = slow_group == 2'd0 ? s4_escape : slow_group == 2'd1 ? s3_escape
                           : slow_group == 2'd2 ? s2_escape : last_escape;
    wire [7:0]   need;
    wire [7:0]   want  = slow ? slow_want : need;
    wire [127:0] given;               // the window's word for each lane that wants one
    wire [31:0]  ahead;               // how many lanes below want one
    wire [3:0]   wanted = ahead[31:28] + {3'd0, want[7]};
    assign       take  = slow || s4_valid ? wanted : 4'd0;
    assign       take_go = slow ? win_ok : moves;
    assign       idle  = !in_valid && !s2_valid && !s3_valid && !s4_valid && !out_valid;

    wire [1:0]   place = load_at[2:1] - in_group;
    wire [255:0] s4_next;
    wire [23:0]  s4_trellis = trellis_1;
    wire [23:0]  s4_trellis_next;
    wire [151:0] s4_symbols;
    wire [127:0] s4_escaped = escapes[s4_group];

    genvar l, j;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            // Search: the quantizer's table, the slot, and where it lies.
            wire         odd = s1_trellis[3*l] && !in_rows;
            wire [9:0]   slot = s1_states[32*l +: 10];
            wire [3:0]   found_magnitude;
            wire [9:0]   found_first;
            wire [10:0]  found_next;
            line_search search (
                .starts(odd ? in_odd[150*l +: 150] : in_even[150*l +: 150]),
                .slot(slot),
                .magnitude(found_magnitude),
                .first(found_first),
                .next(found_next)
            );
            // Known early, for both quantizers: it decides whether beats move.
            wire         escape_even = slot >= in_even[150*l+140 +: 10];
            wire         escape_odd  = slot >= in_odd[150*l+140 +: 10];
            assign       s1_escape[l] = odd ? escape_odd : escape_even;
            reg  [3:0]   s2_magnitude;
            reg  [9:0]   s2_first, s2_slot;
            reg  [10:0]  s2_next;
            // Width: the frequency and the slot above the symbol's first.
            wire [10:0]  width = s2_next - {1'b0, s2_first};
            wire [9:0]   offset = s2_slot - s2_first;
            wire         signs = s2_magnitude != 4'd0 && !s2_escape[l] && !s2_tail;
            wire         negative = signs && {1'b0, offset} >= {1'b0, width[10:1]};
            reg  [3:0]   s3_magnitude;
            reg  [10:0]  s3_frequency;
            reg  [9:0]   s3_bias;
            reg          s3_negative;
            // Product.
            reg  [31:0]  s4_product;
            reg  [3:0]   s4_magnitude;
            reg          s4_negative;
            // Words.
            wire [2:0]   r = s4_raw_bits[3*l +: 3];
            wire [31:0]  lowered = s4_product >> r;
            wire [5:0]   low = s4_product[5:0] & ~(6'h3f << r);
            wire         renew = lowered[31:16] == 16'd0;
            assign       need[l] = s4_mask[l] && renew;
            // Lanes below that want a word.
            wire [7:0]   below = want & ~(8'hff << l);
            assign       ahead[4*l +: 4] = {3'd0, below[0]} + {3'd0, below[1]} + {3'd0, below[2]} + {3'd0, below[3]}
                                         + {3'd0, below[4]} + {3'd0, below[5]} + {3'd0, below[6]};
            wire [127:0] picks;
            for (j = 0; j < 8; j = j + 1) begin : g_pick
                assign picks[16*j +: 16] = ahead[4*l +: 4] == j ? win[16*j +: 16] : 16'd0;
            end
            assign given[16*l +: 16] = picks[15:0] | picks[31:16] | picks[47:32] | picks[63:48]
                                     | picks[79:64] | picks[95:80] | picks[111:96] | picks[127:112];
            assign s4_next[32*l +: 32] = renew ? {lowered[15:0], given[16*l +: 16]} : lowered;
            wire [15:0]  word = s4_escaped[16*l +: 16];
            wire         parity = s4_escape[l] ? word[0]
                                : r == 3'd0 ? s4_magnitude[0] : low[0] ^ (r == 3'd1);
            wire [2:0]   t = s4_trellis[3*l +: 3];
            wire [2:0]   t4 = {1'b0, t[0], t[1] ^ parity};
            wire [2:0]   t8 = {t[0], t[2] ^ parity, t[1] ^ t[0]};
            assign s4_trellis_next[3*l +: 3] = states_code == 2'd0 ? 3'd0 : states_code == 2'd1 ? t4 : t8;
            wire         pending = s4_tail && s4_magnitude != 4'd0 && !s4_escape[l] && s4_mask[l];
            assign s4_symbols[19*l +: 19] =
                {s4_odd[l], pending, s4_escape[l], s4_escape[l] ? word : {2'd0, r, low, s4_negative, s4_magnitude}};
            always @(posedge clk) begin
                if (en) begin
                    s2_magnitude <= found_magnitude;
                    s2_first     <= found_first;
                    s2_next      <= found_next;
                    s2_slot      <= slot;
                    s2_escape[l] <= s1_escape[l] && in_mask[l] && in_valid;
                    s2_odd[l]    <= odd;
                    s3_magnitude <= s2_magnitude;
                    s3_frequency <= signs ? {1'b0, width[10:1]} : width;
                    s3_bias      <= negative ? offset - width[10:1] : offset;
                    s3_negative  <= negative;
                    s4_product   <= s3_frequency * s3_states[32*l+10 +: 22] + {22'd0, s3_bias};
                    s4_magnitude <= s3_magnitude;
                    s4_negative  <= s3_negative;
                end
                if (slow_go) begin
                    escapes[slow_group][16*l +: 16] <= given[16*l +: 16];
                end
            end
        end
    endgenerate

    integer i;
    always @(posedge clk) begin
        if (rst) begin
            s2_valid  <= 1'b0;
            s3_valid  <= 1'b0;
            s4_valid  <= 1'b0;
            out_valid <= 1'b0;
            slow      <= 1'b0;
            slow_done <= 1'b0;
        end else begin
            if (en) begin
                s2_valid <= in_valid;
                s3_valid <= s2_valid;
                s4_valid <= s3_valid;
            end
            out_valid <= en && s4_valid;
            if (!slow && hold) begin
                slow        <= 1'b1;
                slow_group  <= 2'd0;
                last_escape <= s1_escape & in_mask;
            end else if (slow_go) begin
                slow_group <= slow_group + 2'd1;
                slow       <= slow_group != 2'd3;
                slow_done  <= slow_group == 2'd3;
            end else if (en && s4_valid) begin
                slow_done <= 1'b0;
            end
        end
        if (en) begin
            s2_group    <= in_group;
            s2_mask     <= in_mask;
            s2_rows     <= in_rows;
            s2_tail     <= in_tail;
            s2_side     <= in_side;
            s2_raw_bits <= in_rows ? 24'd0 : in_raw_bits;
            s3_group    <= s2_group;
            s3_mask     <= s2_mask;
            s3_rows     <= s2_rows;
            s3_tail     <= s2_tail;
            s3_side     <= s2_side;
            s3_raw_bits <= s2_raw_bits;
            s3_escape   <= s2_valid ? s2_escape : 8'd0;
            s3_odd      <= s2_odd;
            s4_group    <= s3_group;
            s4_mask     <= s3_mask;
            s4_rows     <= s3_rows;
            s4_tail     <= s3_tail;
            s4_side     <= s3_side;
            s4_raw_bits <= s3_raw_bits;
            s4_escape   <= s3_escape;
            s4_odd      <= s3_odd;
            out_rows    <= s4_rows;
            out_side    <= s4_side;
            out_symbols <= s4_symbols;
            for (i = 0; i < 8; i = i + 1) begin
                states_0[32*i +: 32] <= s4_valid && s4_mask[i] ? s4_next[32*i +: 32] : states_1[32*i +: 32];
                trellis_0[3*i +: 3] <= s4_valid && s4_mask[i] && !s4_rows ? s4_trellis_next[3*i +: 3] : trellis_1[3*i +: 3];
            end
            states_1  <= states_2;
            states_2  <= states_3;
            states_3  <= states_0;
            trellis_1 <= trellis_2;
            trellis_2 <= trellis_3;
            trellis_3 <= trellis_0;
        end
        if (load && place == 2'd0) {states_0[128*load_at[0] +: 128], trellis_0} <= {win, 24'd0};
        if (load && place == 2'd1) {states_1[128*load_at[0] +: 128], trellis_1} <= {win, 24'd0};
        if (load && place == 2'd2) {states_2[128*load_at[0] +: 128], trellis_2} <= {win, 24'd0};
        if (load && place == 2'd3) {states_3[128*load_at[0] +: 128], trellis_3} <= {win, 24'd0};
    end

    wire [1023:0] all = {states_3, states_2, states_1, states_0};
    wire [31:0]   upper;
    generate
        for (l = 0; l < 32; l = l + 1) begin : g_final
            assign final_low[16*l +: 16] = all[32*l +: 16];
            assign upper[l] = all[32*l+16 +: 16] == 16'd1;
        end
    endgenerate
    assign final_ok = &upper;
endmodule
