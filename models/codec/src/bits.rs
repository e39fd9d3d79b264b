//! Where bits went: what every tile counts and a report adds up.

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bits {
    /// Stream and tile headers.
    pub headers: f64,
    /// Means of rows and columns, modes of blocks.
    pub prediction: f64,
    /// Row classes, column classes, transmitted ranges.
    pub side: f64,
    /// Magnitudes through the entropy coder.
    pub symbols: f64,
    /// Signs, low bits and escapes.
    pub raw: f64,
}

impl Bits {
    pub fn total(&self) -> f64 {
        self.headers + self.prediction + self.side + self.symbols + self.raw
    }

    pub fn add(&mut self, other: &Self) {
        self.headers += other.headers;
        self.prediction += other.prediction;
        self.side += other.side;
        self.symbols += other.symbols;
        self.raw += other.raw;
    }
}
