//! The deblocking filter (H.265 clause 8.7.2).
