//! How a recording is laid out as JSON: its parts indented, one measured point
//! a line. Thousands of points stay readable and a quarter of the size.

use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Indents objects; below the first array, everything stays on one line.
#[derive(Debug, Default)]
pub(super) struct PointPerLine {
    depth: usize,
    arrays: usize,
    /// Whether the innermost array has anything in it.
    filled: bool,
}

impl PointPerLine {
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }

    fn between<W: ?Sized + Write>(&self, writer: &mut W, first: bool, on_lines: bool) -> io::Result<()> {
        match (first, on_lines) {
            (true, true) => self.line(writer),
            (true, false) => Ok(()),
            (false, true) => {
                writer.write_all(b",")?;
                self.line(writer)
            }
            (false, false) => writer.write_all(b", "),
        }
    }
}

impl Formatter for PointPerLine {
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.between(writer, first, self.arrays == 0)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.arrays == 0 {
            self.line(writer)?;
        }
        writer.write_all(b"}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.arrays += 1;
        self.filled = false;
        writer.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.between(writer, first, self.arrays == 1)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.arrays -= 1;
        if self.arrays == 0 && self.filled {
            self.line(writer)?;
        }
        writer.write_all(b"]")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::PointPerLine;
    use serde::Serialize;

    #[test]
    fn points_take_a_line_each() {
        #[derive(Serialize)]
        struct Point {
            x: u32,
            spread: [f64; 2],
        }
        #[derive(Serialize)]
        struct All {
            name: &'static str,
            points: Vec<Point>,
            none: Vec<u32>,
        }
        let all = All {
            name: "a",
            points: vec![Point { x: 1, spread: [0.5, 1.5] }, Point { x: 2, spread: [1.0, 2.0] }],
            none: Vec::new(),
        };
        let mut bytes = Vec::new();
        all.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, PointPerLine::default()))
            .unwrap();
        let expected = "{\n  \"name\": \"a\",\n  \"points\": [\n    {\"x\": 1, \"spread\": [0.5, 1.5]},\n    {\"x\": 2, \"spread\": [1.0, 2.0]}\n  ],\n  \"none\": []\n}";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
