//! A number for what a plan and its axes are.

use std::fmt;

/// FNV-1a of what is written, without the text itself: axes may be long.
pub fn digest(written: fmt::Arguments<'_>) -> u64 {
    struct Fnv(u64);
    impl fmt::Write for Fnv {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // Adding up cannot fail.
    let _ = fmt::Write::write_fmt(&mut hash, written);
    hash.0
}
