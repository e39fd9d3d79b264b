//! Zstandard, whose library is C: a build for a target without a C compiler
//! leaves it out, and what needs it then says so.

#[cfg(feature = "zstd")]
pub use zstd::bulk::{compress, decompress};

#[cfg(not(feature = "zstd"))]
pub fn compress(_bytes: &[u8], _level: i32) -> std::io::Result<Vec<u8>> {
    Err(left_out())
}

#[cfg(not(feature = "zstd"))]
pub fn decompress(_bytes: &[u8], _capacity: usize) -> std::io::Result<Vec<u8>> {
    Err(left_out())
}

#[cfg(not(feature = "zstd"))]
fn left_out() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, "this build has no Zstandard (feature `zstd`)")
}
