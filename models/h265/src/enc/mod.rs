//! The encoder: search, rate control and writing of all-intra streams.
