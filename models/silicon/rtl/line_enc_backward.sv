// Backward half of the encoder: from entries to symbols, the last value first.
//
// Equals the order of `write` (models/codec/src/entropy/line/tile.rs): values' steps from the
// last to the first, then the row classes'. The signs of the last 16 steps are
// gathered ahead of the first symbol, which is why symbols pass a queue.
// Latency: 6 cycles, and 64 more at the start of a tile. Throughput: 8 values/cycle.
module line_enc_backward (
    input  wire         clk,
    input  wire         rst,
    input  wire [1:0]   states_code,
    input  wire         has_rows,
    input  wire [41:0]  firsts,
    input  wire         coded_we,
    input  wire [4:0]   coded_addr,
    input  wire [15:0]  coded_data,
    input  wire         col_we,
    input  wire [6:0]   col_waddr,
    input  wire [63:0]  col_wdata,
    input  wire         row_valid,    // classes of rows as the front finds them
    input  wire         row_turn,
    input  wire [9:0]   row_at,
    input  wire [8:0]   row_class,
    // A tile.
    input  wire         start,
    output wire         ready,
    input  wire [10:0]  start_rows,
    input  wire [9:0]   start_cols,
    input  wire         start_bank,
    input  wire         start_turn,
    input  wire [95:0]  start_states,
    output wire         entry_re,     // from the last to the first
    input  wire [215:0] entries,
    // Symbols.
    output wire         out_valid,
    input  wire         out_ready,
    output wire [1:0]   out_group,
    output wire [7:0]   out_mask,
    output wire         out_unsigned,
    output wire         out_last,
    output wire [199:0] out_symbols,
    output wire         signs_valid,  // of the tile whose symbols come next
    output wire [511:0] signs,
    input  wire         signs_taken
);
    localparam IDLE = 2'd0, VALUES = 2'd1, ROWS = 2'd2, END = 2'd3;
    reg  [1:0]  state;
    reg  [10:0] rows;
    reg  [9:0]  cols;
    reg         bank, turn;
    reg  [1:0]  group;
    reg  [4:0]  column_step;
    reg  [10:0] row;
    reg  [4:0]  back;                 // steps from the last, 16 at most
    reg         have_signs;
    reg  [511:0] sign_bits;
    wire [4:0]  per_row = cols[9:5] + {4'd0, |cols[4:0]};
    wire [10:0] chunk_base = {row[10:5], group, 3'd0};
    wire [11:0] left = state == ROWS ? {1'b0, rows} - {1'b0, chunk_base}
                     : {2'd0, cols} - {2'd0, column_step, group, 3'd0};
    wire        none = left[11] || left == 12'd0;
    wire [7:0]  mask = none ? 8'd0 : left >= 12'd8 ? 8'hff : ~(8'hff << left[2:0]);
    wire        queue_room;
    wire        issue = (state == VALUES || state == ROWS) && queue_room;
    wire        row_end = group == 2'd0 && column_step == 5'd0;
    wire        values_end = row_end && row == 11'd0;
    wire        rows_end = group == 2'd0 && row[10:5] == 6'd0;
    wire        last = state == ROWS ? rows_end : values_end && !has_rows;
    wire        busy_pipe;
    assign ready = state == IDLE && !have_signs;
    assign entry_re = issue && state == VALUES;

    // Classes of rows, eight in a word, written as they come.
    reg  [71:0] gathered;
    wire [71:0] gathered_now;
    wire [71:0] row_classes;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_gather
            assign gathered_now[9*l +: 9] = row_at[2:0] == l ? row_class : gathered[9*l +: 9];
        end
    endgenerate
    line_ram #(.WIDTH(72), .DEPTH(256), .ADDR(8)) classes_of_rows (
        .clk(clk), .we(row_valid), .waddr({row_turn, row_at[9:3]}), .wdata(gathered_now),
        .re(issue), .raddr({turn, state == ROWS ? {row[9:5], group} : row[9:3]}), .rdata(row_classes)
    );
    wire [63:0] columns;
    line_ram #(.WIDTH(64), .DEPTH(128), .ADDR(7)) column_classes (
        .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(col_wdata),
        .re(issue), .raddr({bank, column_step[3:0], group}), .rdata(columns)
    );

    // Levels, and beside them their classes.
    reg         v1, v2, v3, v4;
    reg         rows1, rows2, rows3;
    reg  [1:0]  g1, g2, g3, g4;
    reg  [7:0]  m1, m2, m3, m4;
    reg         last1, last2, last3, last4;
    reg         end1, end2, end3, end4;
    reg  [4:0]  back1, back2, back3, back4;
    reg  [2:0]  row1;
    wire [127:0] levels2;
    wire [7:0]   quantizers2;
    reg  [127:0] levels3, row_levels2;
    reg  [7:0]   quantizers3;
    wire [23:0]  pairs, raw_bits;
    line_traceback traceback (
        .clk(clk), .states_code(states_code), .load(start), .load_states(start_states),
        .in_valid(v1 && !rows1), .in_group(g1), .in_mask(m1), .in_entries(entries),
        .out_levels(levels2), .out_quantizers(quantizers2)
    );
    wire [8:0] row_of_value = has_rows ? row_classes[9*row1 +: 9] : 9'd0;
    line_classes classify (
        .clk(clk), .en(1'b1), .columns(columns), .row(row_of_value), .gain(6'd0), .firsts(firsts),
        .pairs(pairs), .raw_bits(raw_bits)
    );
    wire [39:0] tables3;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_table
            wire [8:0] class_of = row_classes[9*l +: 9];
            assign tables3[5*l +: 5] = rows3 ? 5'd16 : {1'b0, pairs[3*l +: 3], quantizers3[l]};
            always @(posedge clk) row_levels2[16*l +: 16] <= {{7{class_of[8]}}, class_of};
        end
    endgenerate
    wire [199:0] symbols4;
    wire [7:0]   negatives4;
    line_symbols to_symbols (
        .clk(clk), .we(coded_we), .waddr(coded_addr), .wdata(coded_data), .levels(levels3), .tables(tables3),
        .raw_bits(rows3 ? 24'd0 : raw_bits), .mask(m3), .symbols(symbols4), .negatives(negatives4)
    );

    // The queue.
    reg  [6:0]  head, tail;
    reg  [7:0]  count;
    reg         held;
    wire        leave = held && out_ready;
    wire        fetch = count != 8'd0 && (!held || leave);
    wire [211:0] beat;
    line_ram #(.WIDTH(212), .DEPTH(128), .ADDR(7)) queue (
        .clk(clk), .we(v4), .waddr(tail), .wdata({last4, back4 != 5'd16, g4, m4, symbols4}),
        .re(fetch), .raddr(head), .rdata(beat)
    );
    assign queue_room = count < 8'd116;
    assign out_valid = held;
    assign {out_last, out_unsigned, out_group, out_mask, out_symbols} = beat;
    assign busy_pipe = v1 || v2 || v3 || v4;
    assign signs_valid = have_signs;
    assign signs = sign_bits;

    integer i;
    always @(posedge clk) begin
        if (rst) begin
            state <= IDLE;
            have_signs <= 1'b0;
            {v1, v2, v3, v4} <= 4'd0;
            head <= 7'd0;
            tail <= 7'd0;
            count <= 8'd0;
            held <= 1'b0;
        end else begin
            {v1, v2, v3, v4} <= {issue, v1, v2, v3};
            if (v4) tail <= tail + 7'd1;
            if (fetch) head <= head + 7'd1;
            count <= count + {7'd0, v4} - {7'd0, fetch};
            held  <= fetch || (held && !leave);
            case (state)
                IDLE: if (start) begin
                    state <= VALUES;
                    rows  <= start_rows;
                    cols  <= start_cols;
                    bank  <= start_bank;
                    turn  <= start_turn;
                    group <= 2'd3;
                    column_step <= start_cols[9:5] + {4'd0, |start_cols[4:0]} - 5'd1;
                    row   <= start_rows - 11'd1;
                    back  <= 5'd0;
                end
                VALUES: if (issue) begin
                    group <= group - 2'd1;
                    if (group == 2'd0) begin
                        column_step <= column_step == 5'd0 ? per_row - 5'd1 : column_step - 5'd1;
                        if (column_step == 5'd0) row <= row - 11'd1;
                        if (back != 5'd16) back <= back + 5'd1;
                    end
                    if (values_end) begin
                        state <= has_rows ? ROWS : END;
                        row   <= rows - 11'd1;
                        back  <= 5'd16;
                    end
                end
                ROWS: if (issue) begin
                    group <= group - 2'd1;
                    if (group == 2'd0) row <= row - 11'd32;
                    if (rows_end) state <= END;
                end
                default: if (!busy_pipe) state <= IDLE;
            endcase
            // Signs are whole once the sixteenth step, or all, have passed.
            if (signs_taken) have_signs <= 1'b0;
            else if (v4 && g4 == 2'd0 && (back4 == 5'd15 || (back4 < 5'd15 && end4))) have_signs <= 1'b1;
        end
        if (start) sign_bits <= 512'd0;
        else if (v4 && back4 != 5'd16) begin
            for (i = 0; i < 8; i = i + 1) begin
                if (negatives4[i]) sign_bits[128*g4 + 16*i + back4[3:0]] <= 1'b1;
            end
        end
        if (row_valid) gathered <= gathered_now;
        {rows1, rows2, rows3} <= {state == ROWS, rows1, rows2};
        {g1, g2, g3, g4} <= {group, g1, g2, g3};
        {m1, m2, m3, m4} <= {mask, m1, m2, m3};
        {last1, last2, last3, last4} <= {last, last1, last2, last3};
        {end1, end2, end3, end4} <= {values_end && state == VALUES, end1, end2, end3};
        {back1, back2, back3, back4} <= {back, back1, back2, back3};
        row1 <= row[2:0];
        levels3 <= rows2 ? row_levels2 : levels2;
        quantizers3 <= quantizers2;
    end
endmodule
