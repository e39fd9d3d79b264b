// Tile framing of the decoder: head, exceptions, lanes' states, and the beats.
//
// Equals `parse_head` and the order of `parse` (models/codec/src/entropy/line/tile.rs). Takes a
// tile's shape and length (from the directory), reads its head, then gives one
// beat of eight lanes per cycle: first the row classes', then the values'. A
// head that is wrong, or a tile outside the hardware profile, gives one empty
// step that carries the error; in any case the next tile starts at its own
// first word. The group turns with every cycle in which beats move, as the lanes
// do; a step begins with group 0.
// Latency: 9 cycles and 1 per exception before the first beat of a tile.
module line_dec_ctl (
    input  wire         clk,
    input  wire         rst,
    input  wire         cfg_ok,       // the stream is of the hardware profile
    input  wire         has_rows,     // row classes are coded
    input  wire         cmd_valid,
    output wire         cmd_ready,
    input  wire [15:0]  cmd_rows,     // 1 to 1024
    input  wire [15:0]  cmd_cols,     // 1 to 512
    input  wire         cmd_bank,     // of column attributes
    // Words.
    output wire         start,
    output wire         skip,
    output wire [3:0]   take,
    input  wire [127:0] win,
    input  wire         win_ok,
    input  wire         over,
    input  wire         three,
    input  wire         missing,
    output wire         load,
    output wire [2:0]   load_at,
    // Exceptions.
    output wire         put,
    output wire [3:0]   put_tag,
    output wire [15:0]  put_position,
    output wire [31:0]  put_bits,
    input  wire         put_ready,
    // Beats.
    input  wire         en,
    input  wire         room,
    input  wire         idle,
    output wire         beat_valid,
    output wire         beat_rows,
    output wire [1:0]   beat_group,
    output wire [7:0]   beat_mask,
    output wire [9:0]   beat_row,
    output wire [31:0]  beat_side,
    output wire [5:0]   beat_gain,
    // The end.
    output wire         finish,
    output wire         finish_error,
    output wire [15:0]  finish_beyond, // signs of steps that the tile does not have
    input  wire         finish_ready,
    input  wire         final_ok,
    input  wire         final_beyond
);
    localparam IDLE = 4'd0, HEAD = 4'd1, COUNT = 4'd2, LIST = 4'd3, LOAD = 4'd4, ROWS = 4'd5, ROWS_END = 4'd6,
               VALUES = 4'd7, VALUES_END = 4'd8, SKIP = 4'd9, DROP = 4'd10, EMPTY = 4'd11, EMPTY_END = 4'd12;
    reg  [3:0]  state;
    reg  [10:0] rows;
    reg  [9:0]  cols;
    reg         bank;
    reg  [3:0]  tag;
    reg  [5:0]  gain;
    reg  [5:0]  listed;               // exceptions still to come, less one
    reg  [16:0] lowest;               // the least position the next may have
    reg  [2:0]  at;
    reg  [1:0]  group;
    reg  [4:0]  column_step;          // step of the row
    reg  [10:0] row;
    reg  [11:0] remaining;            // columns (or rows) from this beat on; negative: none
    reg  [14:0] steps_left;
    reg         whole;
    reg         in_step;              // the step that this group belongs to is given

    wire [4:0]  per_row = cols[9:5] + {4'd0, |cols[4:0]};
    wire [15:0] head = win[15:0];
    wire        shape_ok = cmd_rows != 16'd0 && cmd_rows <= 16'd1024 && cmd_cols != 16'd0 && cmd_cols <= 16'd512;
    wire        head_ok = !over && head[5:0] <= 6'd40 && head[15:7] == 9'd0;
    wire        count_ok = !over && head[15:6] == 10'd0;
    wire        item_ok = three && {1'b0, head} >= lowest;

    wire reading = win_ok && (state == HEAD || state == COUNT || state == LOAD);
    assign cmd_ready = state == IDLE;
    assign start = cmd_ready && cmd_valid;
    assign skip  = state == SKIP || state == DROP;
    assign put   = state == LIST && win_ok && put_ready && item_ok;
    assign put_tag      = tag;
    assign put_position = head;
    assign put_bits     = win[47:16];
    assign take  = put ? 4'd3 : reading ? (state == LOAD ? 4'd8 : 4'd1) : 4'd0;
    assign load  = state == LOAD && win_ok;
    assign load_at = at;

    // Beats: a step is not begun without room for it.
    wire issuing = state == ROWS || state == VALUES || state == EMPTY;
    assign beat_valid = issuing && (group != 2'd0 ? in_step : room);
    assign beat_rows  = state == ROWS;
    assign beat_group = group;
    wire   none  = remaining[11] || remaining == 12'd0 || state == EMPTY;
    assign beat_mask = none ? 8'd0 : remaining >= 12'd8 ? 8'hff : ~(8'hff << remaining[2:0]);
    assign beat_row  = row[9:0];
    assign beat_gain = gain;
    wire   whole_now = group == 2'd0 ? !remaining[11] && remaining >= 12'd32 : whole;
    wire   tail  = state == VALUES && steps_left <= 15'd16;
    wire   last  = group == 2'd3 && (state == EMPTY || steps_left == 15'd1);
    wire [14:0] back = steps_left - 15'd1;
    assign beat_side = state == ROWS
        ? {17'd0, row[9:5], group, 8'd0}
        : {2'd0, state == EMPTY, last, tail ? back[3:0] : 4'd0, tail, whole_now, row == 11'd0, gain, bank,
           column_step[3:0], group, beat_mask};
    wire go = beat_valid && en;

    // Lanes stand in their own places when the group is the first.
    assign finish = state == VALUES_END && idle && finish_ready && group == 2'd0;
    assign finish_error = missing || !over || !final_ok || final_beyond;
    // Both long known when they are needed.
    reg  [14:0] total;
    reg  [15:0] beyond;
    assign finish_beyond = beyond;
    always @(posedge clk) begin
        total  <= {4'd0, rows} * {10'd0, per_row};
        beyond <= total >= 15'd16 ? 16'd0 : 16'hffff << total[3:0];
    end

    // Counters of beats: set before the first, then from beat to beat. Whether a beat
    // goes is known late; what follows if it does is not.
    wire        setting  = state == LOAD || state == ROWS_END;
    wire        row_ends = column_step + 5'd1 == per_row;
    wire        step_moves = state == VALUES && group == 2'd3;
    wire        row_moves  = group == 2'd3 && (state == ROWS || (state == VALUES && row_ends));
    wire [11:0] remaining_next = setting ? (state == LOAD && has_rows ? {1'b0, rows} : {2'd0, cols})
        : step_moves && row_ends ? {2'd0, cols} : remaining - 12'd8;
    wire [10:0] row_next = setting ? 11'd0 : state == ROWS ? row + 11'd32 : row + 11'd1;
    wire [4:0]  column_step_next = setting || row_ends ? 5'd0 : column_step + 5'd1;
    wire [14:0] steps_left_next = setting ? total : steps_left - 15'd1;

    always @(posedge clk) begin
        if (rst) begin
            state   <= IDLE;
            tag     <= 4'hf;
            group   <= 2'd0;
            in_step <= 1'b0;
        end else begin
            if (en) begin
                group <= group + 2'd1;
                if (group == 2'd0) in_step <= beat_valid;
            end
            case (state)
                IDLE: if (cmd_valid) begin
                    rows  <= cmd_rows[10:0];
                    cols  <= cmd_cols[9:0];
                    bank  <= cmd_bank;
                    tag   <= tag + 4'd1;
                    at    <= 3'd0;
                    lowest <= 17'd0;
                    gain  <= 6'd0;
                    state <= shape_ok && cfg_ok ? HEAD : DROP;
                end
                HEAD: if (win_ok) begin
                    gain  <= head[5:0];
                    state <= !head_ok ? DROP : head[6] ? COUNT : LOAD;
                end
                COUNT: if (win_ok) begin
                    listed <= head[5:0];
                    state  <= count_ok ? LIST : DROP;
                end
                LIST: if (win_ok && !item_ok) begin
                    state <= DROP;
                end else if (put) begin
                    listed <= listed - 6'd1;
                    lowest <= {1'b0, head} + 17'd1;
                    if (listed == 6'd0) state <= LOAD;
                end
                LOAD: if (win_ok) begin
                    at <= at + 3'd1;
                    if (at == 3'd7) state <= has_rows ? ROWS : VALUES;
                end
                ROWS: if (go && group == 2'd3 && (remaining[11] || remaining <= 12'd8)) state <= ROWS_END;
                ROWS_END: if (idle) state <= VALUES;
                VALUES: if (go && last) state <= VALUES_END;
                VALUES_END: if (finish) state <= SKIP;
                SKIP: if (over) state <= IDLE;
                DROP: if (over) state <= EMPTY;
                EMPTY: if (go && last) state <= EMPTY_END;
                EMPTY_END: if (idle) state <= IDLE;
                default: state <= IDLE;
            endcase
        end
        if (go) whole <= whole_now;
        if (setting || (go && issuing)) remaining <= remaining_next;
        if (setting || (go && row_moves)) row <= row_next;
        if (setting || (go && step_moves)) begin
            column_step <= column_step_next;
            steps_left  <= steps_left_next;
        end
    end
endmodule
