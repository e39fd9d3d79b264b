// Bits of four constants that take turns, ready in flip-flops.
//
// Which of four constants a product is with follows from two bits that would drive
// every multiplier of a transform. Here each of the 16 functions of these two bits
// is a flip-flop: bit k says what bit `at` of the number k is.
// Latency: 1 cycle.
module line_turn (
    input  wire        clk,
    input  wire        en,
    input  wire [1:0]  next,          // the turn after this cycle
    output reg  [15:0] turn
);
    genvar k;
    generate
        for (k = 0; k < 16; k = k + 1) begin : g_function
            localparam [3:0] OF = k;
            always @(posedge clk) if (en) turn[k] <= OF[next];
        end
    endgenerate
endmodule
