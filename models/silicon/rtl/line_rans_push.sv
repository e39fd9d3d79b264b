// rANS encoding step of one lane: see line_rans_enc.
//
// x / f is x times a reciprocal of 33 bits, exact for x below f 2^22; with q the
// quotient, the new state q 1024 + x mod f + start is x + q (1024 - f) + start.
// Latency: 1 cycle to where the state is looked at, 3 more to the next state.
// Throughput: a symbol per cycle.
module line_rans_push (
    input  wire        clk,
    input  wire [57:0] entry,         // as the table has it
    input  wire [24:0] symbol,
    input  wire        in_unsigned,
    input  wire [31:0] state,         // one cycle later
    output wire        full,          // its lower half leaves first
    output wire [31:0] next
);
    // 0: what follows from the symbol.
    wire        escape = symbol[24];
    wire        both = in_unsigned && !escape && symbol[3:0] != 4'd0;
    wire [10:0] f = both ? {entry[56:47], 1'b0} : entry[57:47];
    reg  [32:0] bound1;               // f 2^22 may be 2^32
    reg  [2:0]  r1;
    reg  [5:0]  low1;
    reg  [10:0] less1, less2, less3, less4;   // 1024 - f
    reg  [9:0]  first1, first2, first3;
    reg  [32:0] reciprocal1, reciprocal2;
    reg  [3:0]  log1, log2, log3;
    // 1: renewal and raw bits.
    assign      full = {1'b0, state} >= bound1;
    wire [31:0] kept = full ? {16'd0, state[31:16]} : state;
    reg  [31:0] x2, x3, base4;
    // 2: the product in four pieces; 3: their sum.
    reg  [39:0] piece0, piece1, piece2;
    reg  [40:0] piece3;
    wire [48:0] lower = {9'd0, piece0} + {1'b0, piece1, 8'd0};
    wire [49:0] upper = {10'd0, piece2} + {1'b0, piece3, 8'd0};
    wire [65:0] product = {17'd0, lower} + {upper, 16'd0};
    wire [32:0] shifted = product[64:32] >> log3;
    reg  [21:0] q4;
    // 4: the state.
    assign next = base4 + q4 * less4;
    always @(posedge clk) begin
        bound1      <= {f, 22'd0} >> symbol[18:16];
        r1          <= symbol[18:16];
        low1        <= escape ? 6'd0 : symbol[10:5];
        less1       <= 11'd1024 - f;
        first1      <= entry[46:37] + (!both && !escape && symbol[4] ? entry[56:47] : 10'd0);
        reciprocal1 <= entry[32:0];
        log1        <= entry[36:33] + {3'd0, both};
        x2          <= (kept << r1) | {26'd0, low1};
        {less2, first2, reciprocal2, log2} <= {less1, first1, reciprocal1, log1};
        piece0      <= x2 * reciprocal2[7:0];
        piece1      <= x2 * reciprocal2[15:8];
        piece2      <= x2 * reciprocal2[23:16];
        piece3      <= x2 * reciprocal2[32:24];
        {x3, less3, first3, log3} <= {x2, less2, first2, log2};
        q4          <= shifted[21:0];
        base4       <= x3 + {22'd0, first3};
        less4       <= less3;
    end
endmodule
