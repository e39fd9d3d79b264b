//! C declarations of NVIDIA's video libraries, written by hand.
//!
//! Only what we call; sizes and offsets are held against the C headers by a
//! test (`layouts_match_the_c_headers`). Nothing here decides anything.
#![allow(non_snake_case)]

pub mod cuvid;
pub mod nvenc;
