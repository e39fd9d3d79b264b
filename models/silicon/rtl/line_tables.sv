// Tables loaded ahead: fifteen first slots for each of 16 tables and the rows'.
//
// Magnitude 0 starts at slot 0; frequencies are differences of starts, so they
// are not stored (`Table` of models/codec/src/entropy/line/table.rs). Table 2p + z is that of
// pair p and quantizer z (2p alone with a uniform quantizer), 16 that of row
// classes. Eight lanes each get both tables of their pair.
// Latency: 1 cycle. Throughput: 8 lanes/cycle.
module line_tables (
    input  wire          clk,
    input  wire          we,
    input  wire [4:0]    waddr,
    input  wire [149:0]  wdata,      // starts of magnitudes 1 to 15
    input  wire          en,
    input  wire [23:0]   pairs,
    input  wire          rows,       // all lanes take the rows' table
    output reg  [1199:0] even,       // eight lanes' tables of quantizer 0
    output reg  [1199:0] odd         // and 1
);
    reg [149:0] table_0 [0:7];
    reg [149:0] table_1 [0:7];
    reg [149:0] row_table;
    always @(posedge clk) begin
        if (we && waddr[4]) row_table <= wdata;
        if (we && !waddr[4] && !waddr[0]) table_0[waddr[3:1]] <= wdata;
        if (we && !waddr[4] && waddr[0]) table_1[waddr[3:1]] <= wdata;
    end
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire [149:0] pick_0 = table_0[pairs[3*l +: 3]];
            wire [149:0] pick_1 = table_1[pairs[3*l +: 3]];
            always @(posedge clk) begin
                if (en) begin
                    even[150*l +: 150] <= rows ? row_table : pick_0;
                    odd[150*l +: 150]  <= pick_1;
                end
            end
        end
    endgenerate
endmodule
