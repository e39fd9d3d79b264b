// Tile framing of the encoder: head, exceptions, states, words, in order.
//
// Equals `write_head` and the end of `write` (models/codec/src/entropy/line/tile.rs). A beat
// holds up to eight words; the last one of a tile says whether the tile is too
// large for the word memory or has more exceptions than are kept.
// Latency: 2 cycles. Throughput: 8 words/cycle; an exception takes 2 cycles.
module line_enc_out (
    input  wire          clk,
    input  wire          rst,
    input  wire          go,
    input  wire          turn,
    output wire          idle,
    output wire          release_states, // states and part have been given
    input  wire [6:0]    exceptions,
    input  wire          error,
    input  wire [1023:0] states,
    input  wire [127:0]  part,
    input  wire [2:0]    part_count,
    input  wire [10:0]   rows,
    output wire          list_re,
    output wire [6:0]    list_addr,
    input  wire [47:0]   list_data,
    input  wire          stack_busy,
    output wire          stack_re,
    input  wire [127:0]  stack_data,
    output wire          out_valid,
    input  wire          out_ready,
    output wire [127:0]  out_words,
    output wire [3:0]    out_count,
    output wire          out_last,
    output wire          out_error
);
    localparam IDLE = 3'd0, HEAD = 3'd1, LIST_READ = 3'd2, LIST = 3'd3, STATES = 3'd4, PART = 3'd5, ROWS = 3'd6;
    reg  [2:0]  state;
    reg         side;
    reg  [6:0]  at;
    reg  [10:0] rows_left;            // rows not yet read
    reg         have;                 // a row is on the memory's output
    reg         failed;
    wire        some = exceptions != 7'd0;
    wire        sent = out_valid && out_ready;
    assign idle = state == IDLE;
    assign list_re = state == LIST_READ;
    assign list_addr = {side, at[5:0]};
    assign stack_re = (state == PART || state == ROWS) && rows_left != 11'd0 && !stack_busy
                    && (!have || (state == ROWS && sent));
    wire [10:0] next_row = rows_left - 11'd1;
    wire [6:0]  count_less = exceptions - 7'd1;
    assign out_valid = state == HEAD || state == LIST || state == STATES || (state == PART && part_count != 3'd0)
                     || (state == ROWS && have);
    assign out_words = state == HEAD ? {96'd0, 9'd0, count_less, 9'd0, some, 6'd0}
                     : state == LIST ? {80'd0, list_data}
                     : state == STATES ? states[128*at[2:0] +: 128]
                     : state == PART ? part : stack_data;
    assign out_count = state == HEAD ? (some ? 4'd2 : 4'd1) : state == LIST ? 4'd3 : state == PART ? {1'b0, part_count} : 4'd8;
    wire        no_rows = rows == 11'd0;
    assign out_last = (state == STATES && at[2:0] == 3'd7 && no_rows && part_count == 3'd0) || (state == PART && no_rows)
                    || (state == ROWS && have && rows_left == 11'd0);
    assign out_error = out_last && failed;
    assign release_states = state == PART && (sent || part_count == 3'd0);
    always @(posedge clk) begin
        if (rst) begin
            state <= IDLE;
            have  <= 1'b0;
        end else begin
            case (state)
                IDLE: if (go) begin
                    state     <= HEAD;
                    side      <= turn;
                    failed    <= error;
                    rows_left <= rows;
                    at        <= 7'd0;
                    have      <= 1'b0;
                end
                HEAD: if (out_ready) state <= some ? LIST_READ : STATES;
                LIST_READ: state <= LIST;
                LIST: if (out_ready) begin
                    at    <= at + 7'd1 == exceptions ? 7'd0 : at + 7'd1;
                    state <= at + 7'd1 == exceptions ? STATES : LIST_READ;
                end
                STATES: if (out_ready) begin
                    at <= at + 7'd1;
                    if (at[2:0] == 3'd7) state <= PART;
                end
                PART: if (release_states) state <= no_rows ? IDLE : ROWS;
                default: if (sent && out_last) state <= IDLE;
            endcase
            if (state == PART || state == ROWS) begin
                if (stack_re) rows_left <= next_row;
                have <= stack_re || (have && !(state == ROWS && sent));
            end
        end
    end
endmodule
