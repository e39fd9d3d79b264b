//! Sample adaptive offset (H.265 clause 8.7.3).
