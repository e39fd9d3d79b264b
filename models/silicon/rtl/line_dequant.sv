// Dequantizer: symbols to levels, points, deviations and coefficients.
//
// Equals steps 1 to 3 of "Values" in models/codec/src/format/line/FORMAT.md and `reconstruct` of
// models/codec/src/stage/line/reconstruct.rs up to its transform: gain, the row above times
// its sixteenths, the mean. What a row says of the one below is in memory for up to
// 512 columns; a column comes again after four beats at the earliest.
// Latency: 5 cycles. Throughput: 8 values/cycle.
module line_dequant (
    input  wire         clk,
    input  wire         rst,
    input  wire         transformed,  // the smaller limit
    // Sixteenths (5 bits) and mean (17) of the eight columns of a beat.
    input  wire         col_we,
    input  wire [6:0]   col_waddr,
    input  wire [175:0] col_wdata,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [31:0]  in_side,
    input  wire [151:0] in_symbols,
    output reg          out_valid,
    input  wire         out_ready,
    output reg  [31:0]  out_side,
    output reg  [175:0] out_coefficients  // 22 bits, signed
);
    wire en = !out_valid || out_ready;
    assign in_ready = en;
    reg         v1, v2, v3, v4;
    reg  [31:0] side1, side2, side3, side4;
    reg  [151:0] symbols;
    wire [175:0] columns;             // in stage 4
    reg  [39:0]  sixteenths5;
    wire [167:0] above;               // what it predicts, in stage 3
    wire [167:0] below;
    wire signed [31:0] limit = transformed ? 32'sd131008 : 32'sd1048512;

    line_ram #(.WIDTH(176), .DEPTH(128), .ADDR(7)) attributes (
        .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(col_wdata),
        .re(en), .raddr({side3[14], side3[13:8]}), .rdata(columns)
    );
    line_ram #(.WIDTH(168), .DEPTH(64), .ADDR(6)) from_above (
        .clk(clk), .we(en && out_valid), .waddr(out_side[13:8]), .wdata(below),
        .re(en), .raddr(side2[13:8]), .rdata(above)
    );

    always @(posedge clk) begin
        if (rst) begin
            v1 <= 1'b0;
            v2 <= 1'b0;
            v3 <= 1'b0;
            v4 <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            v1 <= in_valid;
            v2 <= v1;
            v3 <= v2;
            v4 <= v3;
            out_valid <= v4;
        end
        if (en) begin
            symbols  <= in_symbols;
            side1    <= in_side;
            side2    <= side1;
            side3    <= side2;
            side4    <= side3;
            out_side <= side4;
        end
    end

    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            // 1: the level.
            wire [18:0] symbol = symbols[19*l +: 19];
            wire [2:0]  r = symbol[13:11];
            wire signed [4:0] q = symbol[4] ? -{1'b0, symbol[3:0]} : {1'b0, symbol[3:0]};
            wire [6:0]  half = r == 3'd0 ? 7'd0 : 7'd1 << (r - 3'd1);
            wire signed [15:0] coded = ({{11{q[4]}}, q} <<< r) + {10'd0, symbol[10:5]} - {9'd0, half};
            reg  signed [15:0] level;
            reg         odd;
            // 2: the point times sixteenths of the gain's fraction.
            wire signed [17:0] point = {level[15], level, 1'b0}
                - (odd && level != 16'd0 ? (level[15] ? 18'h3ffff : 18'd1) : 18'd0);
            wire signed [20:0] quarters = $signed({1'b0, 3'd4 + {1'b0, side2[16:15]}}) * point;
            reg  signed [20:0] scaled;
            // 3: with what is predicted.
            wire signed [31:0] units = ({{11{scaled[20]}}, scaled} <<< 2) <<< side3[20:17];
            wire signed [20:0] predicted = side3[21] ? 21'd0 : above[21*l +: 21];
            reg  signed [31:0] raw_deviation;
            // 4: the deviation, and the coefficient.
            wire signed [31:0] clamped = raw_deviation > limit ? limit : raw_deviation < -limit ? -limit : raw_deviation;
            wire signed [16:0] mean = columns[22*l+5 +: 17];
            reg  signed [20:0] deviation;
            // 5: what it predicts.
            wire signed [26:0] product = $signed({1'b0, sixteenths5[5*l +: 5]}) * deviation + 27'sd8;
            assign below[21*l +: 21] = product[24:4];
            always @(posedge clk) begin
                if (en) begin
                    level <= symbol[16] ? symbol[15:0] : coded;
                    odd   <= symbol[18];
                    scaled <= quarters;
                    raw_deviation <= units + {{11{predicted[20]}}, predicted};
                    deviation <= clamped[20:0];
                    sixteenths5[5*l +: 5] <= columns[22*l +: 5];
                    out_coefficients[22*l +: 22] <= {{mean[16], mean, 4'd0}} + {clamped[20], clamped[20:0]};
                end
            end
        end
    endgenerate
endmodule
