// Encoder of the line stream: numbers in, words out, 32 lanes, 8 values/cycle.
//
// Equals `encode_tile` of models/codec at gain 0 for plans of the hardware profile
// (docs/silicon.md): 32 lanes; no transform or, with LINE_TRANSFORMS, Hadamard-32
// or DCT-32 in integers; with LINE_PICTURE prediction from the row above where the
// quantizer is uniform; trellis of 1, 4 or 8 states; tiles of up to 512 columns, 1024 rows and 2048
// beats of eight (512 steps); up to 64 exceptions; 8192 words; trellis costs
// below 2^13; 16 / step a normal number below 2^100; fp32, bf16, fp16, MXFP8,
// MXFP6, MXFP4 or, with LINE_PICTURE, samples in. Software chooses the plan,
// writes the header, and loads tables, costs and columns ahead; with a byte budget
// it looks at a tile's words and codes those that are too many itself.
// Two tiles are under way, one forward and one backward, beside a third's words;
// survivors and words have room for one, each new tile following the one that leaves.
// Throughput: 8 values/cycle; 0.97 of that with tiles of 16384 values.
// Latency: a tile and about 150 cycles.
`ifndef LINE_STATES
`define LINE_STATES 8
`endif
`ifndef LINE_TRANSFORMS
`define LINE_TRANSFORMS 0
`endif
`ifndef LINE_PICTURE
`define LINE_PICTURE 0
`endif
module line_enc #(
    parameter STATES = `LINE_STATES,  // of the trellis, at most: 8, 4 or 1
    parameter TRANSFORMS = `LINE_TRANSFORMS,
    parameter PICTURE = `LINE_PICTURE
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [2:0]   cfg_log2_lanes,
    input  wire [1:0]   cfg_states,
    input  wire [2:0]   cfg_transform,
    input  wire         cfg_predicts,
    input  wire         cfg_has_rows,
    input  wire [41:0]  cfg_firsts,
    input  wire [31:0]  cfg_inverse,
    input  wire [5:0]   cfg_rounding,
    input  wire [3:0]   cfg_format,   // of values: see line_widen
    input  wire         cost_we,
    input  wire [3:0]   cost_addr,
    input  wire [207:0] cost_data,
    input  wire         table_we,
    input  wire [8:0]   table_addr,
    input  wire [57:0]  table_data,
    input  wire         coded_we,
    input  wire [4:0]   coded_addr,
    input  wire [15:0]  coded_data,
    input  wire         col_we,
    input  wire [6:0]   col_addr,
    input  wire [63:0]  col_classes,
    input  wire [303:0] col_attributes,
    input  wire [39:0]  col_above,
    input  wire         cmd_valid,
    output wire         cmd_ready,
    output wire         cmd_refused,
    input  wire [15:0]  cmd_rows,
    input  wire [15:0]  cmd_cols,
    input  wire         cmd_bank,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [255:0] in_values,
    input  wire [7:0]   in_scale,     // of a beat's 32 columns, for formats that share one
    output wire         out_valid,
    input  wire         out_ready,
    output wire [127:0] out_words,
    output wire [3:0]   out_count,
    output wire         out_last,
    output wire         out_error
);
    wire [4:0]  cmd_per_row = cmd_cols[9:5] + {4'd0, |cmd_cols[4:0]};
    wire [15:0] cmd_steps = {5'd0, cmd_rows[10:0]} * {11'd0, cmd_per_row};
    wire cmd_ok = cfg_log2_lanes == 3'd5 && cfg_states <= (STATES == 8 ? 2'd2 : STATES == 4 ? 2'd1 : 2'd0) 
        && cfg_transform <= (TRANSFORMS != 0 ? 3'd2 : 3'd0) && (!cfg_predicts || (PICTURE != 0 && cfg_states == 2'd0))
        && cfg_format <= (PICTURE != 0 ? 4'd8 : 4'd7)
        && cfg_inverse[30:23] != 8'd0 && cfg_inverse[30:23] < 8'd227 && !cfg_inverse[31]
        && cmd_rows != 16'd0 && cmd_rows <= 16'd1024 && cmd_cols != 16'd0 && cmd_cols <= 16'd512 && cmd_steps <= 16'd512;

    // Tiles under way, by turn: a third may come once the first has given its states;
    // its words then wait in the stack's other half.
    reg  [1:0]  under_way;
    reg         front_turn, forward_turn, lanes_turn;
    reg  [21:0] shape_0, shape_1;     // bank, columns, rows
    reg  [1:0]  to_forward;
    wire        front_idle, forward_idle, forward_done, back_ready;
    assign cmd_ready = front_idle && under_way != 2'd2;
    wire        accept = cmd_valid && cmd_ready && cmd_ok;
    assign cmd_refused = cmd_valid && cmd_ready && !cmd_ok;
    wire        forward_go = forward_idle && to_forward != 2'd0;
    wire        back_go = forward_done && back_ready;
    wire [21:0] forward_shape = forward_turn ? shape_1 : shape_0;
    reg  [6:0]  listed_0, listed_1;
    reg         many_0, many_1;
    reg  [9:0]  row_at;
    wire        next_turn = !front_turn;

    wire        put, residual_valid, room, row_valid;
    wire [15:0] put_position;
    wire [31:0] put_bits;
    wire [167:0] residuals;
    wire [8:0]  row_class;
    wire         wide_valid, wide_ready;
    wire [255:0] wide;
    line_widen widen (
        .clk(clk), .rst(rst), .format(cfg_format), .in_valid(in_valid), .in_ready(in_ready), .in_values(in_values),
        .in_scale(in_scale), .out_valid(wide_valid), .out_ready(wide_ready), .out_values(wide)
    );
    line_enc_front front (
        .clk(clk), .rst(rst), .inverse(cfg_inverse), .kind(cfg_transform[1:0]), .predicts(cfg_predicts),
        .rounding(cfg_rounding), .has_rows(cfg_has_rows), .col_we(col_we), .col_waddr(col_addr),
        .col_wdata(col_attributes), .col_above(col_above), .start(accept), .idle(front_idle),
        .start_rows(cmd_rows[10:0]), .start_cols(cmd_cols[9:0]), .start_bank(cmd_bank), .in_valid(wide_valid),
        .in_ready(wide_ready), .in_values(wide), .put(put), .put_position(put_position), .put_bits(put_bits),
        .out_valid(residual_valid), .out_residuals(residuals), .out_room(room), .row_valid(row_valid),
        .row_class(row_class)
    );
    wire [6:0]  listed = front_turn ? listed_1 : listed_0;
    wire        list_re;
    wire [6:0]  list_addr;
    wire [47:0] list_data;
    line_ram #(.WIDTH(48), .DEPTH(128), .ADDR(7)) exceptions (
        .clk(clk), .we(put && !listed[6]), .waddr({front_turn, listed[5:0]}), .wdata({put_bits, put_position}),
        .re(list_re), .raddr(list_addr), .rdata(list_data)
    );

    wire         entry_issue, entry_room, entry_we, entry_re;
    wire [215:0] entry_wdata, entry_rdata;
    wire [95:0]  best;
    line_enc_forward forward (
        .clk(clk), .rst(rst), .states_code(cfg_states), .rounding(cfg_rounding), .firsts(cfg_firsts),
        .cost_we(cost_we), .cost_addr(cost_addr), .cost_data(cost_data), .col_we(col_we), .col_waddr(col_addr),
        .col_wdata(col_classes), .in_valid(residual_valid), .in_residuals(residuals), .in_room(room),
        .row_valid(row_valid), .row_class(row_class), .start(forward_go), .idle(forward_idle),
        .start_rows(forward_shape[10:0]), .start_cols(forward_shape[20:11]), .start_bank(forward_shape[21]),
        .entry_room(entry_room), .entry_issue(entry_issue), .entry_we(entry_we), .entries(entry_wdata),
        .done(forward_done), .taken(back_ready), .best(best)
    );
    line_survivors survivors (
        .clk(clk), .rst(rst), .issue(entry_issue), .room(entry_room), .we(entry_we), .wdata(entry_wdata),
        .turn(back_go), .re(entry_re), .rdata(entry_rdata)
    );

    wire         sym_valid, sym_ready, sym_unsigned, sym_last, signs_valid, load;
    wire [1:0]   sym_group;
    wire [7:0]   sym_mask;
    wire [199:0] symbols;
    wire [511:0] signs;
    line_enc_backward backward (
        .clk(clk), .rst(rst), .states_code(cfg_states), .has_rows(cfg_has_rows), .firsts(cfg_firsts),
        .coded_we(coded_we), .coded_addr(coded_addr), .coded_data(coded_data), .col_we(col_we),
        .col_waddr(col_addr), .col_wdata(col_classes), .row_valid(row_valid), .row_turn(front_turn),
        .row_at(row_at), .row_class(row_class), .start(back_go), .ready(back_ready),
        .start_rows(forward_shape[10:0]), .start_cols(forward_shape[20:11]), .start_bank(forward_shape[21]),
        .start_turn(forward_turn), .start_states(best), .entry_re(entry_re),
        .entries(entry_rdata), .out_valid(sym_valid), .out_ready(sym_ready), .out_group(sym_group),
        .out_mask(sym_mask), .out_unsigned(sym_unsigned), .out_last(sym_last), .out_symbols(symbols),
        .signs_valid(signs_valid), .signs(signs), .signs_taken(load)
    );

    // Lanes: load, push, wait for the last word, hand over.
    localparam WAIT = 2'd0, PUSH = 2'd1, SETTLE = 2'd2, HAND = 2'd3;
    reg  [1:0]  lanes;
    reg  [1:0]  settle;
    wire        lanes_ready, lanes_idle, out_idle, released;
    wire [7:0]  given;
    wire [127:0] words;
    wire [1023:0] states;
    assign load = lanes == WAIT && signs_valid;
    wire        pressed;
    wire        pushing = lanes == PUSH && !pressed;
    assign sym_ready = pushing && lanes_ready;
    line_rans_enc rans (
        .clk(clk), .rst(rst), .table_we(table_we), .table_addr(table_addr), .table_data(table_data), .load(load),
        .load_signs(signs), .in_valid(sym_valid && pushing), .in_ready(lanes_ready), .in_group(sym_group),
        .in_mask(sym_mask), .in_unsigned(sym_unsigned), .in_symbols(symbols), .out_given(given),
        .out_words(words), .idle(lanes_idle), .states_now(states)
    );
    wire [127:0] part, stack_data;
    wire [2:0]   part_count;
    wire [10:0]  rows;
    wire         overflow, stack_re, stack_busy, go;
    line_stack stack (
        .clk(clk), .rst(rst), .clear(load || rst), .given(given), .words(words), .part(part),
        .part_count(part_count), .rows(rows), .overflow(overflow), .turn(go), .pressed(pressed),
        .busy(stack_busy), .re(stack_re), .rdata(stack_data)
    );
    wire         hand = lanes == HAND && out_idle;
    reg          handed;
    assign       go = hand && !handed;
    line_enc_out out (
        .clk(clk), .rst(rst), .go(go), .turn(lanes_turn), .idle(out_idle), .release_states(released),
        .exceptions(lanes_turn ? listed_1 : listed_0), .error(overflow || (lanes_turn ? many_1 : many_0)),
        .states(states), .part(part), .part_count(part_count), .rows(rows), .list_re(list_re),
        .list_addr(list_addr), .list_data(list_data), .stack_busy(stack_busy), .stack_re(stack_re),
        .stack_data(stack_data), .out_valid(out_valid), .out_ready(out_ready), .out_words(out_words),
        .out_count(out_count), .out_last(out_last), .out_error(out_error)
    );

    always @(posedge clk) begin
        if (rst) begin
            under_way    <= 2'd0;
            front_turn   <= 1'b1;
            forward_turn <= 1'b0;
            lanes_turn   <= 1'b0;
            to_forward   <= 2'd0;
            lanes        <= WAIT;
            handed       <= 1'b0;
        end else begin
            under_way  <= under_way + {1'b0, accept} - {1'b0, handed && released};
            to_forward <= to_forward + {1'b0, accept} - {1'b0, forward_go};
            if (accept) begin
                front_turn <= next_turn;
                row_at     <= 10'd0;
                if (next_turn) {shape_1, listed_1, many_1} <= {cmd_bank, cmd_cols[9:0], cmd_rows[10:0], 7'd0, 1'b0};
                else {shape_0, listed_0, many_0} <= {cmd_bank, cmd_cols[9:0], cmd_rows[10:0], 7'd0, 1'b0};
            end else begin
                if (row_valid) row_at <= row_at + 10'd1;
                if (put && !listed[6] && front_turn) listed_1 <= listed_1 + 7'd1;
                if (put && !listed[6] && !front_turn) listed_0 <= listed_0 + 7'd1;
                if (put && listed[6] && front_turn) many_1 <= 1'b1;
                if (put && listed[6] && !front_turn) many_0 <= 1'b1;
            end
            if (back_go) forward_turn <= !forward_turn;
            case (lanes)
                WAIT: if (signs_valid) lanes <= PUSH;
                PUSH: if (sym_valid && sym_ready && sym_last) begin
                    lanes  <= SETTLE;
                    settle <= 2'd3;
                end
                SETTLE: begin
                    if (!lanes_idle) settle <= 2'd3;
                    else if (settle != 2'd0) settle <= settle - 2'd1;
                    else lanes <= HAND;
                end
                default: begin
                    if (hand) handed <= 1'b1;
                    if (handed && released) begin
                        handed     <= 1'b0;
                        lanes      <= WAIT;
                        lanes_turn <= !lanes_turn;
                    end
                end
            endcase
        end
    end
endmodule
