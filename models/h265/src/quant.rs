//! Scaling and quantization (H.265 clause 8.6.3).
