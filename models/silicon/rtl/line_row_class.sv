// Row class: how a row stands to its columns' classes, in quarter octaves.
//
// Equals `row_class` of models/codec/src/stage/line/quantize.rs after its sum: quarter_log2
// of max(1, sum / columns) less 76. Nothing is divided: the octave is the largest
// o with sum >> o at least `columns`, and bounds are multiplied by them.
// Latency: 13 cycles. Throughput: a row in 14 cycles.
module line_row_class (
    input  wire        clk,
    input  wire        rst,
    input  wire        go,
    input  wire [63:0] sum,
    input  wire [9:0]  cols,
    output wire        busy,
    output reg         done,          // for one cycle, with the class
    output reg  [8:0]  row_class
);
    reg  [3:0]  at;                   // 0 idle, 1-6 octave, 7-12 bounds, each in three cycles
    reg  [63:0] held;
    reg  [5:0]  octave;
    reg  [2:0]  quarters;
    assign busy = at != 4'd0;
    wire [5:0]  tried = octave | (6'd32 >> (at - 4'd1));
    wire [63:0] shifted = held >> tried;
    wire        reaches = shifted >= {54'd0, cols};
    // 2^(1/8), 2^(3/8), 2^(5/8), 2^(7/8) in 16 bits of fraction.
    wire [16:0] bound = at == 4'd7 ? 17'd71468 : at == 4'd8 ? 17'd84990 : at == 4'd9 ? 17'd101070 : 17'd120194;
    wire        high = octave > 6'd16;
    wire [4:0]  down = high ? 5'd0 : 6'd16 - octave;
    wire [16:0] lost = bound & ~(17'h1ffff << down);
    wire [17:0] least = {1'b0, bound >> down} + {17'd0, |lost};
    reg  [17:0] least_now;
    reg  [27:0] product;
    reg  [63:0] mantissa;
    wire        above = |mantissa[63:28] || mantissa[27:0] >= product;
    wire [2:0]  counted = quarters + {2'd0, above};
    always @(posedge clk) begin
        done <= 1'b0;
        if (rst) at <= 4'd0;
        else if (at == 4'd0) begin
            if (go) at <= 4'd1;
            held     <= sum;
            octave   <= 6'd0;
            quarters <= 3'd0;
        end else if (at <= 4'd6) begin
            if (reaches) octave <= tried;
            at <= at + 4'd1;
        end else begin
            least_now <= least;
            product   <= least_now * cols;
            mantissa  <= held >> (high ? octave - 6'd16 : 6'd0);
            if (at >= 4'd9) quarters <= counted;
            at <= at == 4'd12 ? 4'd0 : at + 4'd1;
            if (at == 4'd12) begin
                done <= 1'b1;
                row_class <= {1'b0, octave, 2'd0} + {6'd0, counted} - 9'd76;
            end
        end
    end
endmodule
