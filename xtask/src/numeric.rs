//! The workspace's one hash and its random numbers, as `trinity-numeric` has them: by their files, since
//! chores depend on nothing.
#![allow(dead_code, reason = "of each a function; others use more of them")]

#[path = "../../models/numeric/src/hash.rs"]
pub mod hash;
#[path = "../../models/numeric/src/random.rs"]
pub mod random;
