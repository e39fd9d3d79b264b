//! Residual transforms (H.265 clauses 8.6.2 and 8.6.4 to 8.6.6).
