//! A number for what a plan and its axes are.

use std::fmt::{self, Write as _};

use trinity_numeric::hash::Fnv1a;

/// FNV-1a of what is written, without the text itself: axes may be long.
#[derive(Clone, Debug, Default)]
pub struct Digest(Fnv1a);

impl Digest {
    pub fn add(&mut self, written: fmt::Arguments<'_>) {
        // Adding up cannot fail.
        let _ = self.write_fmt(written);
    }

    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.add(text.bytes());
        Ok(())
    }
}

/// The digest of one text.
pub fn digest(written: fmt::Arguments<'_>) -> u64 {
    let mut digest = Digest::default();
    digest.add(written);
    digest.finish()
}
