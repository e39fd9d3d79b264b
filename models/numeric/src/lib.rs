//! Arithmetic that codecs share: principal axes ([`axes`]) and the reflections that state them in a
//! stream ([`reflections`]), square matrices ([`square`]), loops: plain ones in the widest registers
//! there are ([`simd`]), e^x in one ([`exp`]), independent ones over threads ([`threads`]); products of matrices on a
//! processor's unit for tiles ([`tiles`]); one hash ([`hash`]), the random
//! numbers of tests ([`random`]) and constants that were chosen by measurement ([`tuned`]).
//!
//! Knows numbers; knows no codec, and of streams only how a matrix is written into one.
#![deny(unsafe_code)]

pub mod axes;
pub mod exp;
pub mod hash;
pub mod random;
pub mod reflections;
pub mod simd;
pub mod square;
pub mod threads;
pub mod tiles;
pub mod tuned;
