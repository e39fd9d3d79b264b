//! Inner loops for wide registers, and the choice between them and their plain
//! twins. Know arrays of numbers and nothing of what they stand for.

pub mod combine;
