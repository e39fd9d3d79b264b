// Symbols of eight levels: magnitude, sign, raw bits, or an escape.
//
// Equals `Push::new` of models/codec/src/entropy/line/tile.rs up to the table's numbers: an
// escape is a magnitude above 14 or one that its table never codes.
// Latency: 1 cycle. Throughput: 8 levels/cycle.
module line_symbols (
    input  wire         clk,
    input  wire         we,           // which magnitudes a table codes
    input  wire [4:0]   waddr,
    input  wire [15:0]  wdata,
    input  wire [127:0] levels,
    input  wire [39:0]  tables,       // five bits each
    input  wire [23:0]  raw_bits,
    input  wire [7:0]   mask,
    output reg  [199:0] symbols,      // 25 bits: 24 escape, 23:19 table, 18:16 raw bits,
                                      // 15:0 level, or 10:5 low, 4 negative, 3:0 magnitude
    output reg  [7:0]   negatives     // not escapes, and below zero
);
    reg [15:0] coded [0:16];
    always @(posedge clk) if (we) coded[waddr] <= wdata;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire signed [15:0] level = levels[16*l +: 16];
            wire [2:0]  r = raw_bits[3*l +: 3];
            wire [4:0]  at = tables[5*l +: 5];
            wire signed [16:0] centred = {level[15], level} + (r == 3'd0 ? 17'd0 : 17'd1 << (r - 3'd1));
            wire signed [16:0] symbol = centred >>> r;
            wire [5:0]  low = centred[5:0] & ~(6'h3f << r);
            wire [16:0] magnitude = symbol[16] ? -symbol : symbol;
            wire [15:0] codes = coded[at];
            wire        escape = magnitude > 17'd14 || !codes[magnitude[3:0]];
            always @(posedge clk) begin
                symbols[25*l +: 25] <= {escape, at, r, escape ? level : {5'd0, low, symbol[16], magnitude[3:0]}};
                negatives[l] <= mask[l] && !escape && symbol[16];
            end
        end
    endgenerate
endmodule
