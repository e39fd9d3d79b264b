//! Entropy coding of residuals (H.265 clause 9.3): context variables, scans
//! and residual_coding() as the encoder writes it. The arithmetic engine
//! itself is [`trinity_bits::cabac`].

pub mod contexts;
pub mod residual;
pub mod scan;
