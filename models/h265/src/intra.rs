//! Intra prediction (H.265 clause 8.4.4.2).
