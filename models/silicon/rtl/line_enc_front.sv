// Front of the encoder: values of a tile to residuals and row classes.
//
// Equals `targets` and the first loop of `quantize` (models/codec/src/stage/line/quantize.rs):
// with LINE_TRANSFORMS under its transforms in integers, with LINE_PICTURE under
// prediction from the row above for a uniform quantizer. Rows wait in
// memory until their class is known; exceptions are listed, one per cycle.
// Latency: a row and 21 cycles; 6 more with transforms, 1 with prediction built in.
// Throughput: 8 values/cycle; with row classes a row in 28 cycles (34, 29) at the least.
`ifndef LINE_TRANSFORMS
`define LINE_TRANSFORMS 0
`endif
`ifndef LINE_PICTURE
`define LINE_PICTURE 0
`endif
module line_enc_front #(
    parameter TRANSFORMS = `LINE_TRANSFORMS,
    parameter PICTURE = `LINE_PICTURE
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [31:0]  inverse,
    input  wire [1:0]   kind,         // of transform: 0 none, 1 Hadamard-32, 2 DCT-32
    input  wire         predicts,
    input  wire [5:0]   rounding,
    input  wire         has_rows,
    // Mean (17 bits), weight (17) and the weight's shift (4) of eight columns.
    input  wire         col_we,
    input  wire [6:0]   col_waddr,
    input  wire [303:0] col_wdata,
    input  wire [39:0]  col_above,    // sixteenths (5 bits) of the same
    // A tile.
    input  wire         start,
    output wire         idle,
    input  wire [10:0]  start_rows,
    input  wire [9:0]   start_cols,
    input  wire         start_bank,   // of column attributes
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [255:0] in_values,
    // Exceptions.
    output wire         put,
    output wire [15:0]  put_position,
    output wire [31:0]  put_bits,
    // Beats of residuals, and classes of rows as they become known.
    output wire         out_valid,
    output wire [167:0] out_residuals,
    input  wire         out_room,
    output wire         row_valid,
    output wire [8:0]   row_class
);
    reg         active;
    reg  [9:0]  cols;
    reg         bank;
    reg  [10:0] rows_left;
    reg  [1:0]  group;
    reg  [4:0]  column_step;
    reg  [11:0] remaining;
    reg         class_pending;
    wire [4:0]  per_row = cols[9:5] + {4'd0, |cols[4:0]};
    wire        none = remaining[11] || remaining == 12'd0;
    wire [7:0]  mask = none ? 8'd0 : remaining >= 12'd8 ? 8'hff : ~(8'hff << remaining[2:0]);
    wire        row_end = group == 2'd3 && column_step + 5'd1 == per_row;
    wire        en;
    wire        transformed = TRANSFORMS != 0 && kind != 2'd0;
    wire        may = active && out_room && !(row_end && class_pending);
    wire        issue = may && (none || in_valid) && en;
    assign in_ready = may && !none && en;

    reg         v1, v2, v3, v4, v5;
    reg         end5, end6, end7, end8;
    reg  [7:0]  mask1, mask2, mask3, mask4;
    wire [167:0] targets;
    wire [7:0]   exceptions;
    wire [255:0] values;
    line_align align (
        .clk(clk), .en(en), .inverse(inverse), .transformed(transformed), .in_values(in_values),
        .out_targets(targets), .out_exceptions(exceptions), .out_values(values)
    );

    // A beat stays until all its exceptions are listed.
    reg  [7:0]  listed;
    wire [7:0]  to_list = v4 ? exceptions & mask4 & ~listed : 8'd0;
    wire [7:0]  now = to_list & (~to_list + 8'd1);
    wire [2:0]  at = {now[4] | now[5] | now[6] | now[7], now[2] | now[3] | now[6] | now[7], now[1] | now[3] | now[5] | now[7]};
    assign put = |to_list;
    assign en = to_list == now;
    reg  [15:0] position;             // of the beat's first value
    assign put_position = position + {13'd0, at};
    assign put_bits = values[32*at +: 32];

    // Beats of targets, or of coefficients some cycles later, counted anew.
    wire         t_valid;
    wire [167:0] t_targets;
    reg          t_active, t_first;
    reg  [10:0]  t_rows;
    reg  [1:0]   t_group;
    reg  [4:0]   t_step;
    reg  [11:0]  t_remaining;
    wire         t_none = t_remaining[11] || t_remaining == 12'd0;
    wire [7:0]   t_mask = t_none ? 8'd0 : t_remaining >= 12'd8 ? 8'hff : ~(8'hff << t_remaining[2:0]);
    wire         t_end = t_group == 2'd3 && t_step + 5'd1 == per_row;
    wire [5:0]   t_beat = {t_step[3:0], t_group};
    wire [5:0]   t_next = !t_valid ? t_beat : t_end ? 6'd0 : t_beat + 6'd1;
    wire [135:0] means;
    wire [167:0] weights;
    wire [135:0] means_put;
    wire [167:0] weights_put;
    wire [5:0]   weights_at;
    wire         r_valid, r_end;      // a cycle before the residuals
    line_ram #(.WIDTH(136), .DEPTH(128), .ADDR(7)) means_of_columns (
        .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(means_put),
        .re(en), .raddr({bank, t_next}), .rdata(means)
    );
    line_ram #(.WIDTH(168), .DEPTH(128), .ADDR(7)) weights_of_columns (
        .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(weights_put),
        .re(en), .raddr({bank, weights_at}), .rdata(weights)
    );
    wire [167:0] residuals;
    genvar l;
    generate
        if (TRANSFORMS != 0) begin : g_transform
            reg  whole, whole1, whole2, whole3, whole4;
            wire whole_now = group == 2'd0 ? !remaining[11] && remaining >= 12'd32 : whole;
            always @(posedge clk) begin
                if (issue) whole <= whole_now;
                if (en) {whole1, whole2, whole3, whole4} <= {whole_now, whole1, whole2, whole3};
            end
            line_analysis analysis (
                .clk(clk), .rst(rst), .en(en), .kind(kind), .in_valid(v4), .in_full(whole4), .in_targets(targets),
                .out_valid(t_valid), .out_targets(t_targets)
            );
        end else begin : g_no_transform
            assign t_valid = v4;
            assign t_targets = targets;
        end
        if (PICTURE != 0) begin : g_predict
            reg  v_1, end_1;
            reg  [5:0] beat_1;
            assign r_valid = v_1;
            assign r_end = end_1;
            assign weights_at = beat_1;
            always @(posedge clk) begin
                if (rst) v_1 <= 1'b0;
                else if (en) v_1 <= t_valid;
                if (en) {end_1, beat_1} <= {t_end, t_beat};
            end
            line_predict predict (
                .clk(clk), .rst(rst), .en(en), .predicts(predicts), .transformed(transformed), .rounding(rounding),
                .col_we(col_we), .col_waddr(col_waddr), .col_wdata(col_above), .in_valid(t_valid), .in_bank(bank),
                .in_beat(t_beat), .in_first(t_first), .in_mask(t_mask), .in_targets(t_targets), .in_means(means),
                .out_residuals(residuals)
            );
        end else begin : g_no_prediction
            assign r_valid = t_valid;
            assign r_end = t_end;
            assign weights_at = t_beat;
            wire signed [22:0] limit = transformed ? 23'sd131008 : 23'sd1048512;
            for (l = 0; l < 8; l = l + 1) begin : g_residual
                wire signed [16:0] mean = means[17*l +: 17];
                wire signed [20:0] target = t_targets[21*l +: 21];
                wire signed [22:0] raw = {{2{target[20]}}, target} - {{2{mean[16]}}, mean, 4'd0};
                wire signed [22:0] clamped = raw > limit ? limit : raw < -limit ? -limit : raw;
                reg  [20:0] residual;
                assign residuals[21*l +: 21] = residual;
                always @(posedge clk) if (en) residual <= t_mask[l] ? clamped[20:0] : 21'd0;
            end
        end
    endgenerate

    reg  [159:0] magnitudes;          // 20 bits each
    reg  [167:0] weights6;            // 17 bits, and 4 of a shift
    reg  [295:0] products;            // 37 bits each
    reg  [31:0]  shifts7;
    reg  [407:0] terms;               // 51 bits each
    reg  [63:0]  eight;
    reg  [63:0]  sum;
    assign out_valid = v5 && en;
    assign out_residuals = residuals;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            assign means_put[17*l +: 17] = col_wdata[38*l +: 17];
            assign weights_put[21*l +: 21] = col_wdata[38*l+17 +: 21];
            wire [20:0] r = residuals[21*l +: 21];
            always @(posedge clk) begin
                if (en) begin
                    magnitudes[20*l +: 20] <= r[20] ? -r[19:0] : r[19:0];
                    products[37*l +: 37] <= magnitudes[20*l +: 20] * weights6[21*l +: 17];
                    shifts7[4*l +: 4] <= weights6[21*l+17 +: 4];
                    terms[51*l +: 51] <= {14'd0, products[37*l +: 37]} << shifts7[4*l +: 4];
                end
            end
        end
    endgenerate
    reg  [52:0] lower, upper;         // of four terms each
    reg  v6, v7, v8, v9, v10, end9, end10;
    wire [63:0] total = sum + eight;
    wire class_done;
    wire [8:0] class_found;
    wire class_busy;
    line_row_class classify_row (
        .clk(clk), .rst(rst), .go(has_rows && v10 && end10 && en), .sum(total), .cols(cols),
        .busy(class_busy), .done(class_done), .row_class(class_found)
    );
    assign idle = !active && !t_active && !(r_valid || v5 || v6 || v7 || v8 || v9 || v10) && !class_pending && !class_busy && !class_done;
    assign row_valid = has_rows ? class_done : v5 && end5 && en;
    assign row_class = has_rows ? class_found : 9'd0;

    always @(posedge clk) begin
        if (rst) begin
            active <= 1'b0;
            {v1, v2, v3, v4, v5, v6, v7, v8, v9, v10} <= 10'd0;
            class_pending <= 1'b0;
            listed <= 8'd0;
            sum <= 64'd0;
            t_active <= 1'b0;
        end else begin
            if (en) begin
                {v1, v2, v3, v4, v5, v6, v7, v8, v9, v10} <= {issue, v1, v2, v3, r_valid, v5, v6, v7, v8, v9};
                listed <= 8'd0;
                if (v10) sum <= end10 ? 64'd0 : total;
            end else begin
                listed <= listed | now;
            end
            if (issue && row_end && has_rows) class_pending <= 1'b1;
            else if (class_done) class_pending <= 1'b0;
            if (start) begin
                active      <= 1'b1;
                rows_left   <= start_rows;
                cols        <= start_cols;
                bank        <= start_bank;
                group       <= 2'd0;
                column_step <= 5'd0;
                remaining   <= {2'd0, start_cols};
            end else if (issue) begin
                group     <= group + 2'd1;
                remaining <= remaining - 12'd8;
                if (group == 2'd3) column_step <= column_step + 5'd1;
                if (row_end) begin
                    column_step <= 5'd0;
                    remaining   <= {2'd0, cols};
                    rows_left   <= rows_left - 11'd1;
                    active      <= rows_left != 11'd1;
                end
            end
            if (start) begin
                t_active    <= 1'b1;
                t_first     <= 1'b1;
                t_rows      <= start_rows;
                t_group     <= 2'd0;
                t_step      <= 5'd0;
                t_remaining <= {2'd0, start_cols};
            end else if (en && t_valid) begin
                t_group     <= t_group + 2'd1;
                t_remaining <= t_remaining - 12'd8;
                if (t_group == 2'd3) t_step <= t_step + 5'd1;
                if (t_end) begin
                    t_step      <= 5'd0;
                    t_remaining <= {2'd0, cols};
                    t_rows      <= t_rows - 11'd1;
                    t_first     <= 1'b0;
                    t_active    <= t_rows != 11'd1;
                end
            end
            if (start) position <= 16'd0;
            else if (en && v4) position <= position + {12'd0, {3'd0, mask4[0]} + {3'd0, mask4[1]} + {3'd0, mask4[2]} + {3'd0, mask4[3]}
                                                   + {3'd0, mask4[4]} + {3'd0, mask4[5]} + {3'd0, mask4[6]} + {3'd0, mask4[7]}};
        end
        if (en) begin
            {end5, end6, end7, end8, end9, end10} <= {r_end, end5, end6, end7, end8, end9};
            weights6 <= weights;
            {mask1, mask2, mask3, mask4} <= {mask, mask1, mask2, mask3};
            lower    <= {2'd0, terms[50:0]} + {2'd0, terms[101:51]} + ({2'd0, terms[152:102]} + {2'd0, terms[203:153]});
            upper    <= {2'd0, terms[254:204]} + {2'd0, terms[305:255]} + ({2'd0, terms[356:306]} + {2'd0, terms[407:357]});
            eight    <= {11'd0, lower} + {11'd0, upper};
        end
    end
endmodule
