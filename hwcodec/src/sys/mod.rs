//! C declarations of NVIDIA's libraries, written by hand.
//!
//! Only what we call; sizes and offsets of the video libraries' structures are
//! held against the C headers by a test (`layouts_match_the_c_headers`). Nothing here decides anything.
#![allow(non_snake_case)]

pub mod cuvid;
pub mod nvcomp;
pub mod nvenc;
