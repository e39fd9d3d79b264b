// Decoder of the line stream: words in, numbers out, 32 lanes, 8 values/cycle.
//
// Equals `parse` and `reconstruct` of models/codec for streams of the hardware
// profile (docs/silicon.md): 32 lanes; transform none, Hadamard-32 or, with
// LINE_TRANSFORMS, DCT-32; trellis of 1, 4 or 8 states; tiles of up to 512 columns and 1024 rows; up to 64
// exceptions; a step whose sixteenth (with transform 2032nd part) is a normal
// number. The header is read by software, which loads tables, column attributes
// and scale ahead; anything else gives the tile an empty answer with the error.
// Latency: about 40 cycles to the first values of a tile without row classes.
`ifndef LINE_TRANSFORMS
`define LINE_TRANSFORMS 0
`endif
`ifndef LINE_PICTURE
`define LINE_PICTURE 0
`endif
module line_dec #(
    parameter TRANSFORMS = `LINE_TRANSFORMS,
    parameter PICTURE = `LINE_PICTURE
) (
    input  wire         clk,
    input  wire         rst,
    // Of the stream; to be changed while `busy` is low.
    input  wire [2:0]   cfg_log2_lanes,
    input  wire [1:0]   cfg_states,
    input  wire [2:0]   cfg_transform,
    input  wire         cfg_has_rows,
    input  wire [41:0]  cfg_firsts,
    input  wire [31:0]  cfg_scale,
    input  wire [2:0]   cfg_format,   // of values: see line_format
    input  wire         table_we,
    input  wire [4:0]   table_addr,
    input  wire [149:0] table_data,
    // Attributes of eight columns: class 8, sixteenths 5, mean 17; two banks.
    input  wire         col_we,
    input  wire [6:0]   col_addr,
    input  wire [63:0]  col_classes,
    input  wire [175:0] col_attributes,
    // Tiles.
    input  wire         cmd_valid,
    output wire         cmd_ready,
    input  wire [15:0]  cmd_rows,
    input  wire [15:0]  cmd_cols,
    input  wire         cmd_bank,
    input  wire [19:0]  cmd_words,
    // Words of tiles, one tile right after the other.
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [127:0] in_words,
    // Values, row by row, eight columns at most.
    output wire         out_valid,
    input  wire         out_ready,
    output wire         out_last,
    output wire         out_error,    // with the last beat of a tile
    output wire [7:0]   out_mask,
    output wire [255:0] out_values
);
    wire is_dct = TRANSFORMS != 0 && cfg_transform == 3'd2;
    wire transformed = cfg_transform == 3'd1 || is_dct;
    wire cfg_ok = cfg_log2_lanes == 3'd5 && cfg_states != 2'd3 && cfg_transform <= (TRANSFORMS != 0 ? 3'd2 : 3'd1)
               && cfg_format <= (PICTURE != 0 ? 3'd4 : 3'd2)
               && cfg_scale[30:23] != 8'd0 && cfg_scale[30:23] != 8'hff && !cfg_scale[31];

    wire         start, skip, win_ok, over, three, missing, lane_go;
    wire [127:0] win;
    wire [3:0]   ctl_take, lane_take;
    line_feed feed (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_words(in_words),
        .start(start), .start_words(cmd_words), .skip(skip), .win(win), .win_ok(win_ok),
        .take(ctl_take | lane_take), .go(lane_go), .missing(missing), .over(over), .three(three)
    );

    wire         load, put, put_ready, en, room, beat_valid, beat_rows, finish, finish_error, finish_ready;
    wire         final_ok, lanes_idle;
    wire [2:0]   load_at;
    wire [3:0]   put_tag;
    wire [15:0]  put_position, finish_beyond;
    wire [31:0]  put_bits, beat_side;
    wire [1:0]   beat_group;
    wire [7:0]   beat_mask;
    wire [9:0]   beat_row;
    wire [5:0]   gain;
    wire [511:0] final_low;
    reg          c1_valid, c2_valid, c3_valid, d_valid;
    wire         idle = !c1_valid && !c2_valid && !c3_valid && lanes_idle;
    wire [31:0]  beyond;
    line_dec_ctl ctl (
        .clk(clk), .rst(rst), .cfg_ok(cfg_ok), .has_rows(cfg_has_rows), .cmd_valid(cmd_valid),
        .cmd_ready(cmd_ready), .cmd_rows(cmd_rows), .cmd_cols(cmd_cols), .cmd_bank(cmd_bank), .start(start),
        .skip(skip), .take(ctl_take), .win(win), .win_ok(win_ok), .over(over), .three(three), .missing(missing),
        .load(load), .load_at(load_at), .put(put), .put_tag(put_tag), .put_position(put_position),
        .put_bits(put_bits), .put_ready(put_ready), .en(en), .room(room), .idle(idle), .beat_valid(beat_valid),
        .beat_rows(beat_rows), .beat_group(beat_group), .beat_mask(beat_mask), .beat_row(beat_row),
        .beat_side(beat_side), .beat_gain(gain), .finish(finish), .finish_error(finish_error),
        .finish_beyond(finish_beyond), .finish_ready(finish_ready), .final_ok(final_ok), .final_beyond(|beyond)
    );

    // Classes and tables of a beat, three cycles ahead of its lanes.
    wire [63:0]  columns;
    wire [71:0]  row_classes;
    wire         row_we;
    wire [6:0]   row_waddr;
    wire [71:0]  row_wdata;
    line_ram #(.WIDTH(64), .DEPTH(128), .ADDR(7)) column_classes (
        .clk(clk), .we(col_we), .waddr(col_addr), .wdata(col_classes),
        .re(en), .raddr({beat_side[14], beat_side[13:8]}), .rdata(columns)
    );
    line_ram #(.WIDTH(72), .DEPTH(128), .ADDR(7)) classes_of_rows (
        .clk(clk), .we(row_we), .waddr(row_waddr), .wdata(row_wdata),
        .re(en), .raddr(beat_row[9:3]), .rdata(row_classes)
    );
    reg          c1_rows, c2_rows, c3_rows, d_rows;
    reg  [1:0]   c1_group, c2_group, c3_group, d_group;
    reg  [7:0]   c1_mask, c2_mask, c3_mask, d_mask;
    reg  [31:0]  c1_side, c2_side, c3_side, d_side;
    reg  [23:0]  d_raw_bits;
    wire [23:0]  pairs, raw_bits;
    reg  [7:0]   c1_row_is;           // which of eight, if any: the memory answers late
    wire [8:0]   row_class = (c1_row_is[0] ? row_classes[8:0] : 9'd0) | (c1_row_is[1] ? row_classes[17:9] : 9'd0)
                           | (c1_row_is[2] ? row_classes[26:18] : 9'd0) | (c1_row_is[3] ? row_classes[35:27] : 9'd0)
                           | (c1_row_is[4] ? row_classes[44:36] : 9'd0) | (c1_row_is[5] ? row_classes[53:45] : 9'd0)
                           | (c1_row_is[6] ? row_classes[62:54] : 9'd0) | (c1_row_is[7] ? row_classes[71:63] : 9'd0);
    line_classes classify (
        .clk(clk), .en(en), .columns(columns), .row(row_class), .gain(gain), .firsts(cfg_firsts),
        .pairs(pairs), .raw_bits(raw_bits)
    );
    wire [1199:0] even, odd;
    line_tables tables (
        .clk(clk), .we(table_we), .waddr(table_addr), .wdata(table_data), .en(en), .pairs(pairs),
        .rows(c3_rows), .even(even), .odd(odd)
    );
    always @(posedge clk) begin
        if (rst) begin
            c1_valid <= 1'b0;
            c2_valid <= 1'b0;
            c3_valid <= 1'b0;
            d_valid  <= 1'b0;
        end else if (en) begin
            c1_valid <= beat_valid;
            c2_valid <= c1_valid;
            c3_valid <= c2_valid;
            d_valid  <= c3_valid;
        end
        if (en) begin
            c1_rows  <= beat_rows;
            c1_group <= beat_group;
            c1_mask  <= beat_mask;
            c1_side  <= beat_side;
            c1_row_is <= cfg_has_rows ? 8'd1 << beat_row[2:0] : 8'd0;
            {c2_rows, c2_group, c2_mask, c2_side} <= {c1_rows, c1_group, c1_mask, c1_side};
            {c3_rows, c3_group, c3_mask, c3_side} <= {c2_rows, c2_group, c2_mask, c2_side};
            {d_rows, d_group, d_mask, d_side} <= {c3_rows, c3_group, c3_mask, c3_side};
            d_raw_bits <= raw_bits;
        end
    end

    wire         sym_valid, sym_rows;
    wire [31:0]  sym_side;
    wire [151:0] symbols;
    line_rans_dec lanes (
        .clk(clk), .rst(rst), .load(load), .load_at(load_at), .states_code(cfg_states), .in_valid(d_valid),
        .in_group(d_group), .in_mask(d_mask), .in_rows(d_rows), .in_tail(d_side[23] && !d_rows), .in_even(even), .in_odd(odd),
        .in_raw_bits(d_raw_bits), .in_side(d_side), .en(en), .win(win), .win_ok(win_ok), .take(lane_take), .take_go(lane_go),
        .out_valid(sym_valid), .out_rows(sym_rows), .out_side(sym_side), .out_symbols(symbols), .idle(lanes_idle),
        .final_low(final_low), .final_ok(final_ok)
    );
    assign row_we = sym_valid && sym_rows;
    assign row_waddr = sym_side[14:8];
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_row
            wire [15:0] word = symbols[19*l +: 16];
            wire [8:0]  saturated = word[15:8] == {8{word[15]}} ? word[8:0] : {word[15], {8{!word[15]}}};
            wire [8:0]  plain = word[4] ? -{5'd0, word[3:0]} : {5'd0, word[3:0]};
            assign row_wdata[9*l +: 9] = symbols[19*l+16] ? saturated : plain;
        end
        for (l = 0; l < 32; l = l + 1) begin : g_beyond
            assign beyond[l] = |(final_low[16*l +: 16] & finish_beyond);
        end
    endgenerate

    wire         t_valid, t_ready, q_valid, q_ready, h_valid, h_ready, f_valid, f_ready, s_valid, s_ready, x_valid, x_ready;
    wire [31:0]  t_side, q_side, h_side, f_side, s_side, x_side;
    wire [151:0] t_symbols;
    wire [175:0] q_coefficients;
    wire [255:0] h_x, f_values, s_values, x_values;
    wire [7:0]   x_kept;
    line_tail waiting (
        .clk(clk), .rst(rst), .in_valid(sym_valid && !sym_rows), .in_side(sym_side), .in_symbols(symbols),
        .room(room), .finish(finish), .finish_signs(final_low), .finish_error(finish_error),
        .finish_ready(finish_ready), .out_valid(t_valid), .out_ready(t_ready), .out_side(t_side),
        .out_symbols(t_symbols)
    );
    // Ready, said again here: a stage's own drives all its flip-flops first.
    wire         dequant_ready;
    assign t_ready = !q_valid || q_ready;
    line_dequant dequant (
        .clk(clk), .rst(rst), .transformed(transformed), .col_we(col_we), .col_waddr(col_addr),
        .col_wdata(col_attributes), .in_valid(t_valid), .in_ready(dequant_ready), .in_side(t_side),
        .in_symbols(t_symbols), .out_valid(q_valid), .out_ready(q_ready), .out_side(q_side),
        .out_coefficients(q_coefficients)
    );
    wire         hadamard_valid, hadamard_ready, transform_valid, transform_ready;
    wire [31:0]  hadamard_side, transform_side;
    wire [255:0] hadamard_x, transform_x;
    line_hadamard_inv hadamard (
        .clk(clk), .rst(rst), .transformed(transformed), .in_valid(q_valid && !is_dct), .in_ready(hadamard_ready),
        .in_side(q_side), .in_coefficients(q_coefficients), .out_valid(hadamard_valid),
        .out_ready(transform_ready), .out_side(hadamard_side), .out_x(hadamard_x)
    );
    generate
        if (TRANSFORMS != 0) begin : g_dct
            wire         dct_valid, dct_ready;
            wire [31:0]  dct_side;
            wire [255:0] dct_x;
            line_dct_inv dct (
                .clk(clk), .rst(rst), .in_valid(q_valid && is_dct), .in_ready(dct_ready), .in_side(q_side),
                .in_coefficients(q_coefficients), .out_valid(dct_valid), .out_ready(transform_ready),
                .out_side(dct_side), .out_x(dct_x)
            );
            assign q_ready = !(is_dct ? dct_valid : hadamard_valid) || transform_ready;
            assign {transform_valid, transform_side, transform_x} = is_dct
                ? {dct_valid, dct_side, dct_x} : {hadamard_valid, hadamard_side, hadamard_x};
        end else begin : g_no_dct
            assign q_ready = !hadamard_valid || transform_ready;
            assign {transform_valid, transform_side, transform_x} = {hadamard_valid, hadamard_side, hadamard_x};
        end
    endgenerate
    line_skid after_transform (
        .clk(clk), .rst(rst), .in_valid(transform_valid), .in_ready(transform_ready),
        .in_beat({transform_side, transform_x}), .out_valid(h_valid), .out_ready(h_ready), .out_beat({h_side, h_x})
    );
    line_float float (
        .clk(clk), .rst(rst), .scale(cfg_scale), .in_valid(h_valid), .in_ready(h_ready), .in_side(h_side),
        .in_x(h_x), .out_valid(f_valid), .out_ready(f_ready), .out_side(f_side), .out_values(f_values)
    );
    line_skid skid (
        .clk(clk), .rst(rst), .in_valid(f_valid), .in_ready(f_ready), .in_beat({f_side, f_values}),
        .out_valid(s_valid), .out_ready(s_ready), .out_beat({s_side, s_values})
    );
    line_exceptions exceptions (
        .clk(clk), .rst(rst), .put(put), .put_tag(put_tag), .put_position(put_position), .put_bits(put_bits),
        .put_ready(put_ready), .in_valid(s_valid), .in_ready(s_ready), .in_side(s_side), .in_values(s_values),
        .out_valid(x_valid), .out_ready(x_ready), .out_side(x_side), .out_values(x_values), .out_kept(x_kept)
    );
    line_format to_format (
        .clk(clk), .rst(rst), .format(cfg_format), .in_valid(x_valid), .in_ready(x_ready), .in_side(x_side),
        .in_values(x_values), .in_kept(x_kept), .out_valid(out_valid), .out_ready(out_ready),
        .out_last(out_last), .out_error(out_error), .out_mask(out_mask), .out_values(out_values)
    );
endmodule
