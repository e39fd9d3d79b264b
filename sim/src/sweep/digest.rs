//! A number for what a plan and its axes are.

use std::fmt::{self, Write as _};

/// FNV-1a of what is written, without the text itself: axes may be long.
#[derive(Clone, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a text.
    pub fn add(&mut self, written: fmt::Arguments<'_>) {
        // Adding up cannot fail.
        let _ = self.write_fmt(written);
    }

    /// The hash of what was added.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// The digest of one text.
pub fn digest(written: fmt::Arguments<'_>) -> u64 {
    let mut digest = Digest::default();
    digest.add(written);
    digest.finish()
}
