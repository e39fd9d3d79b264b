// Forward half of the encoder: rows of residuals through the trellis.
//
// Equals the search of `quantize` (models/codec/src/stage/line/quantize.rs) up to where it
// turns back, for paths that run through the whole tile. Rows wait in memory for
// their class; every value leaves an entry for line_traceback. With a uniform
// quantizer (`round`) the entry is the level.
// Latency: 8 cycles. Throughput: 8 values/cycle.
`ifndef LINE_STATES
`define LINE_STATES 8
`endif
module line_enc_forward #(
    parameter STATES = `LINE_STATES   // of the trellis, at most: 8, 4 or 1
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [1:0]   states_code,
    input  wire [5:0]   rounding,
    input  wire [41:0]  firsts,
    // Costs of 16 magnitudes, 13 bits each, of table 2p + z.
    input  wire         cost_we,
    input  wire [3:0]   cost_addr,
    input  wire [207:0] cost_data,
    // Classes of eight columns; two banks.
    input  wire         col_we,
    input  wire [6:0]   col_waddr,
    input  wire [63:0]  col_wdata,
    // Rows.
    input  wire         in_valid,
    input  wire [167:0] in_residuals,
    output wire         in_room,
    input  wire         row_valid,
    input  wire [8:0]   row_class,
    // A tile.
    input  wire         start,
    output wire         idle,
    input  wire [10:0]  start_rows,
    input  wire [9:0]   start_cols,
    input  wire         start_bank,
    // Entries, in order.
    input  wire         entry_room,
    output wire         entry_issue,
    output wire         entry_we,
    output wire [215:0] entries,
    // The end.
    output wire         done,
    input  wire         taken,
    output wire [95:0]  best
);
    reg         active, ending;
    reg  [2:0]  wait_left;
    reg  [10:0] rows_left;
    reg  [10:0] rows_ready;
    reg  [9:0]  cols;
    reg         bank;
    reg  [1:0]  group;
    reg  [4:0]  column_step;
    reg  [11:0] remaining;
    reg         first_row;
    wire [4:0]  per_row = cols[9:5] + {4'd0, |cols[4:0]};
    wire        none = remaining[11] || remaining == 12'd0;
    wire [7:0]  mask = none ? 8'd0 : remaining >= 12'd8 ? 8'hff : ~(8'hff << remaining[2:0]);
    wire        row_end = group == 2'd3 && column_step + 5'd1 == per_row;
    wire        issue = active && rows_ready != 11'd0 && entry_room;
    assign entry_issue = issue;
    wire        first = first_row && column_step == 5'd0;
    assign idle = !active && !ending;
    assign done = ending && wait_left == 3'd0;

    // Residuals and row classes wait in turn.
    reg  [7:0]  head, tail;
    reg  [8:0]  count;
    wire [167:0] residuals;
    line_ram #(.WIDTH(168), .DEPTH(256), .ADDR(8)) rows_waiting (
        .clk(clk), .we(in_valid), .waddr(tail), .wdata(in_residuals), .re(issue), .raddr(head), .rdata(residuals)
    );
    assign in_room = count < 9'd240;
    reg  [9:0]  class_head, class_tail;
    wire [8:0]  row_now;
    line_ram #(.WIDTH(9), .DEPTH(1024), .ADDR(10)) classes_waiting (
        .clk(clk), .we(row_valid), .waddr(class_tail), .wdata(row_class), .re(issue), .raddr(class_head), .rdata(row_now)
    );
    reg  [167:0] res2, res3, res4;
    reg  [167:0] res5;
    reg          v1, v2, v3, v4, v5, v6, v7;
    reg          f1, f2, f3, f4, f5, f6;
    reg  [1:0]   g1, g2, g3, g4, g5, g6;
    reg  [7:0]   m1, m2, m3, m4, m5, m6;
    wire [151:0] chosen, levels6;      // by the trellis, and the one that counts
    reg  [151:0] levels7;
    wire [63:0]  decisions;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_uniform
            wire [20:0] r = res5[21*l +: 21];
            wire [19:0] magnitude = r[20] ? -r[19:0] : r[19:0];
            wire [20:0] raised = {1'b0, magnitude} + {15'd0, rounding};
            reg  [18:0] plain;
            always @(posedge clk) plain <= {2'd0, r[20], raised[20:5]};
            assign levels6[19*l +: 19] = STATES == 1 || states_code == 2'd0 ? plain : chosen[19*l +: 19];
            assign entries[27*l +: 27] = {decisions[8*l +: 8], levels7[19*l +: 19]};
        end
        if (STATES == 1) begin : g_no_trellis
            assign chosen = 152'd0;
            assign decisions = 64'd0;
            assign best = 96'd0;
        end else begin : g_trellis
            // Classes, then costs of both tables of each lane's pair.
            wire [63:0] columns;
            line_ram #(.WIDTH(64), .DEPTH(128), .ADDR(7)) column_classes (
                .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(col_wdata),
                .re(issue), .raddr({bank, column_step[3:0], group}), .rdata(columns)
            );
            wire [23:0] pairs, raw_bits;
            line_classes classify (
                .clk(clk), .en(1'b1), .columns(columns), .row(row_now), .gain(6'd0), .firsts(firsts),
                .pairs(pairs), .raw_bits(raw_bits)
            );
            reg  [207:0] cost_0 [0:7];
            reg  [207:0] cost_1 [0:7];
            reg  [23:0]  raw4;
            wire [447:0] costs;
            always @(posedge clk) begin
                if (cost_we && !cost_addr[0]) cost_0[cost_addr[3:1]] <= cost_data;
                if (cost_we && cost_addr[0]) cost_1[cost_addr[3:1]] <= cost_data;
                raw4 <= raw_bits;
            end
            for (l = 0; l < 8; l = l + 1) begin : g_lane
                reg [207:0] lane_0, lane_1;
                line_candidates candidates (
                    .clk(clk), .en(1'b1), .residual(res4[21*l +: 21]), .raw_bits(raw4[3*l +: 3]),
                    .costs_0(lane_0), .costs_1(lane_1), .costs(costs[56*l +: 56]), .level(chosen[19*l +: 19])
                );
                always @(posedge clk) begin
                    lane_0 <= cost_0[pairs[3*l +: 3]];
                    lane_1 <= cost_1[pairs[3*l +: 3]];
                end
            end
            line_trellis trellis (
                .clk(clk), .en(1'b1), .eight(states_code == 2'd2), .in_valid(v6), .in_first(f6), .in_group(g6),
                .in_mask(m6), .in_costs(costs), .out_decisions(decisions), .best(best)
            );
        end
    endgenerate
    assign entry_we = v7;

    always @(posedge clk) begin
        if (rst) begin
            active <= 1'b0;
            ending <= 1'b0;
            rows_ready <= 11'd0;
            head <= 8'd0;
            tail <= 8'd0;
            count <= 9'd0;
            class_head <= 10'd0;
            class_tail <= 10'd0;
            {v1, v2, v3, v4, v5, v6, v7} <= 7'd0;
        end else begin
            {v1, v2, v3, v4, v5, v6, v7} <= {issue, v1, v2, v3, v4, v5, v6};
            if (in_valid) tail <= tail + 8'd1;
            if (issue) head <= head + 8'd1;
            count <= count + {8'd0, in_valid} - {8'd0, issue};
            if (row_valid) class_tail <= class_tail + 10'd1;
            rows_ready <= rows_ready + {10'd0, row_valid} - {10'd0, issue && row_end};
            if (start) begin
                active      <= 1'b1;
                rows_left   <= start_rows;
                cols        <= start_cols;
                bank        <= start_bank;
                group       <= 2'd0;
                column_step <= 5'd0;
                remaining   <= {2'd0, start_cols};
                first_row   <= 1'b1;
            end else if (issue) begin
                group     <= group + 2'd1;
                remaining <= remaining - 12'd8;
                if (group == 2'd3) column_step <= column_step + 5'd1;
                if (row_end) begin
                    column_step <= 5'd0;
                    remaining   <= {2'd0, cols};
                    rows_left   <= rows_left - 11'd1;
                    class_head  <= class_head + 10'd1;
                    first_row   <= 1'b0;
                    if (rows_left == 11'd1) begin
                        active    <= 1'b0;
                        ending    <= 1'b1;
                        wait_left <= 3'd7;
                    end
                end
            end
            if (ending && wait_left != 3'd0 && !v1 && !v2 && !v3 && !v4 && !v5 && !v6) wait_left <= wait_left - 3'd1;
            if (done && taken) ending <= 1'b0;
        end
        {f1, f2, f3, f4, f5, f6} <= {first, f1, f2, f3, f4, f5};
        {g1, g2, g3, g4, g5, g6} <= {group, g1, g2, g3, g4, g5};
        {m1, m2, m3, m4, m5, m6} <= {mask, m1, m2, m3, m4, m5};
        res2 <= residuals;
        res3 <= res2;
        res4 <= res3;
        res5 <= res4;
        levels7 <= levels6;
    end
endmodule
