// Front of the encoder: values of a tile to residuals and row classes.
//
// Equals `targets` and the first loop of `quantize` (models/line/src/quantize.rs)
// without transform and without prediction from the row above. Rows wait in
// memory until their class is known; exceptions are listed, one per cycle.
// Latency: a row and 20 cycles. Throughput: 8 values/cycle; with row classes a
// row in 27 cycles at the least.
module line_enc_front (
    input  wire         clk,
    input  wire         rst,
    input  wire [31:0]  inverse,
    input  wire         has_rows,
    // Mean (17 bits), weight (17) and the weight's shift (4) of eight columns.
    input  wire         col_we,
    input  wire [6:0]   col_waddr,
    input  wire [303:0] col_wdata,
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
    wire        may = active && out_room && !(row_end && class_pending);
    wire        issue = may && (none || in_valid) && en;
    assign in_ready = may && !none && en;

    reg         v1, v2, v3, v4, v5;
    reg         end1, end2, end3, end4, end5, end6, end7, end8;
    reg  [7:0]  mask1, mask2, mask3, mask4;
    reg  [5:0]  beat1, beat2, beat3;
    wire [167:0] targets;
    wire [7:0]   exceptions;
    wire [255:0] values;
    line_align align (
        .clk(clk), .en(en), .inverse(inverse), .in_values(in_values),
        .out_targets(targets), .out_exceptions(exceptions), .out_values(values)
    );
    wire [303:0] columns;
    line_ram #(.WIDTH(304), .DEPTH(128), .ADDR(7)) attributes (
        .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(col_wdata),
        .re(en), .raddr({bank, beat3}), .rdata(columns)
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

    reg  [167:0] residuals;
    reg  [303:0] weights5;
    reg  [295:0] products;            // 37 bits each
    reg  [31:0]  shifts6;
    reg  [407:0] terms;               // 51 bits each
    reg  [63:0]  eight;
    reg  [63:0]  sum;
    assign out_valid = v5 && en;
    assign out_residuals = residuals;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire signed [16:0] mean = columns[38*l +: 17];
            wire signed [20:0] target = targets[21*l +: 21];
            wire signed [22:0] raw = {{2{target[20]}}, target} - {{2{mean[16]}}, mean, 4'd0};
            wire signed [22:0] clamped = raw > 23'sd1048512 ? 23'sd1048512 : raw < -23'sd1048512 ? -23'sd1048512 : raw;
            wire [20:0] r = residuals[21*l +: 21];
            wire [19:0] magnitude = r[20] ? -r[19:0] : r[19:0];
            wire [16:0] weight = weights5[38*l+17 +: 17];
            always @(posedge clk) begin
                if (en) begin
                    residuals[21*l +: 21] <= mask4[l] ? clamped[20:0] : 21'd0;
                    products[37*l +: 37] <= magnitude * weight;
                    shifts6[4*l +: 4] <= weights5[38*l+34 +: 4];
                    terms[51*l +: 51] <= {14'd0, products[37*l +: 37]} << shifts6[4*l +: 4];
                end
            end
        end
    endgenerate
    reg  [52:0] lower, upper;         // of four terms each
    reg  v9, end9;
    reg  v6, v7, v8;
    wire [63:0] total = sum + eight;
    wire class_done;
    wire [8:0] class_found;
    wire class_busy;
    line_row_class classify_row (
        .clk(clk), .rst(rst), .go(has_rows && v9 && end9 && en), .sum(total), .cols(cols),
        .busy(class_busy), .done(class_done), .row_class(class_found)
    );
    assign idle = !active && !(v1 || v2 || v3 || v4 || v5 || v6 || v7 || v8 || v9) && !class_pending && !class_busy && !class_done;
    assign row_valid = has_rows ? class_done : v5 && end5 && en;
    assign row_class = has_rows ? class_found : 9'd0;

    always @(posedge clk) begin
        if (rst) begin
            active <= 1'b0;
            {v1, v2, v3, v4, v5, v6, v7, v8, v9} <= 9'd0;
            class_pending <= 1'b0;
            listed <= 8'd0;
            sum <= 64'd0;
        end else begin
            if (en) begin
                {v1, v2, v3, v4, v5, v6, v7, v8, v9} <= {issue, v1, v2, v3, v4, v5, v6, v7, v8};
                listed <= 8'd0;
                if (v9) sum <= end9 ? 64'd0 : total;
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
            if (start) position <= 16'd0;
            else if (en && v4) position <= position + {12'd0, {3'd0, mask4[0]} + {3'd0, mask4[1]} + {3'd0, mask4[2]} + {3'd0, mask4[3]}
                                                   + {3'd0, mask4[4]} + {3'd0, mask4[5]} + {3'd0, mask4[6]} + {3'd0, mask4[7]}};
        end
        if (en) begin
            {end1, end2, end3, end4, end5, end6, end7, end8, end9} <= {row_end, end1, end2, end3, end4, end5, end6, end7, end8};
            {mask1, mask2, mask3, mask4} <= {mask, mask1, mask2, mask3};
            {beat1, beat2, beat3} <= {{column_step[3:0], group}, beat1, beat2};
            weights5 <= columns;
            lower    <= {2'd0, terms[50:0]} + {2'd0, terms[101:51]} + ({2'd0, terms[152:102]} + {2'd0, terms[203:153]});
            upper    <= {2'd0, terms[254:204]} + {2'd0, terms[305:255]} + ({2'd0, terms[356:306]} + {2'd0, terms[407:357]});
            eight    <= {11'd0, lower} + {11'd0, upper};
        end
    end
endmodule
