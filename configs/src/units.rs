//! Units as people write them: `100 Gbit/s`, `0.97 mm2`, `4.5 pJ/bit`, `80 GiB`.
//!
//! A unit is a scale and a dimension (powers of a few base quantities), so a
//! wrong unit is told apart from a misspelt one. Knows nothing of who asks.

use std::fmt;

/// Powers of the base quantities, in the order of `BASES`.
pub(crate) type Dimension = [i8; 8];

/// bit, second, metre, joule, floating-point operation, gate, sample, token.
const BASES: [&str; 8] = ["bit", "s", "m", "J", "FLOP", "gate", "sample", "token"];

const NONE: Dimension = [0; 8];

/// A number and its unit. The scale to base units is kept apart from the
/// number, so that reading a value in the unit it was written in is exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measure {
    pub number: f64,
    pub scale: f64,
    pub dimension: Dimension,
}

/// Why a text is no measure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Unreadable {
    NoNumber,
    /// The word that is no unit, and the unit closest to it.
    NoUnit(String, Option<String>),
}

const fn dimension(index: usize) -> Dimension {
    let mut dimension = NONE;
    dimension[index] = 1;
    dimension
}

const BIT: Dimension = dimension(0);
const SECOND: Dimension = dimension(1);
const METRE: Dimension = dimension(2);
const JOULE: Dimension = dimension(3);
const FLOP: Dimension = dimension(4);
const GATE: Dimension = dimension(5);
const SAMPLE: Dimension = dimension(6);
const TOKEN: Dimension = dimension(7);
const WATT: Dimension = [0, -1, 0, 1, 0, 0, 0, 0];
const HERTZ: Dimension = [0, -1, 0, 0, 0, 0, 0, 0];
const BIT_PER_SECOND: Dimension = [1, -1, 0, 0, 0, 0, 0, 0];
const FLOP_PER_SECOND: Dimension = [0, -1, 0, 0, 1, 0, 0, 0];

/// Symbol, scale to base units, dimension, whether an SI prefix may precede it.
const SYMBOLS: &[(&str, f64, Dimension, bool)] = &[
    ("bit", 1.0, BIT, true),
    ("bits", 1.0, BIT, true),
    ("b", 1.0, BIT, true),
    ("B", 8.0, BIT, true),
    ("byte", 8.0, BIT, true),
    ("bytes", 8.0, BIT, true),
    ("bps", 1.0, BIT_PER_SECOND, true),
    ("Bps", 8.0, BIT_PER_SECOND, true),
    ("s", 1.0, SECOND, true),
    ("min", 60.0, SECOND, false),
    ("h", 3600.0, SECOND, false),
    ("m", 1.0, METRE, true),
    // Centi stands before the metre and nothing else.
    ("cm", 0.01, METRE, false),
    ("J", 1.0, JOULE, true),
    ("Wh", 3600.0, JOULE, true),
    ("W", 1.0, WATT, true),
    ("Hz", 1.0, HERTZ, true),
    ("FLOP", 1.0, FLOP, true),
    ("FLOPs", 1.0, FLOP, true),
    ("OP", 1.0, FLOP, true),
    ("FLOPS", 1.0, FLOP_PER_SECOND, true),
    ("OPS", 1.0, FLOP_PER_SECOND, true),
    ("gate", 1.0, GATE, true),
    ("gates", 1.0, GATE, true),
    ("sample", 1.0, SAMPLE, true),
    ("samples", 1.0, SAMPLE, true),
    ("pixel", 1.0, SAMPLE, true),
    ("pixels", 1.0, SAMPLE, true),
    ("value", 1.0, SAMPLE, false),
    ("token", 1.0, TOKEN, true),
    ("tokens", 1.0, TOKEN, true),
    ("%", 0.01, NONE, false),
    ("×", 1.0, NONE, false),
    ("x", 1.0, NONE, false),
];

const PREFIXES: &[(&str, f64)] = &[
    ("f", 1e-15),
    ("p", 1e-12),
    ("n", 1e-9),
    ("u", 1e-6),
    ("µ", 1e-6),
    ("μ", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
];

/// Reads `NUMBER UNIT`; the space is optional, digits may be grouped with `_`.
pub(crate) fn parse(text: &str) -> Result<Measure, Unreadable> {
    let text = text.trim();
    let (number, unit) = split_number(text).ok_or(Unreadable::NoNumber)?;
    let mut measure = Measure { number, scale: 1.0, dimension: NONE };
    let mut sign = 1;
    for part in unit.split('/').map(str::trim) {
        if part.is_empty() && unit.is_empty() {
            break;
        }
        let (scale, dimension) = factor(part)?;
        measure.scale = if sign > 0 { measure.scale * scale } else { measure.scale / scale };
        for (total, power) in measure.dimension.iter_mut().zip(dimension) {
            *total = total.saturating_add(sign * power);
        }
        sign = -1;
    }
    Ok(measure)
}

/// The longest prefix of `text` that is a number, and the rest.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text
        .char_indices()
        .find(|&(at, symbol)| {
            let in_exponent = matches!(symbol, '+' | '-') && (at == 0 || text[..at].ends_with(['e', 'E']));
            let opens_exponent = matches!(symbol, 'e' | 'E')
                && text[at + 1..]
                    .starts_with(|next: char| next.is_ascii_digit() || matches!(next, '+' | '-'));
            !(symbol.is_ascii_digit() || matches!(symbol, '.' | '_') || in_exponent || opens_exponent)
        })
        .map_or(text.len(), |(at, _)| at);
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// One factor such as `mm2`, `Gbit` or `µs`: its scale and dimension.
fn factor(word: &str) -> Result<(f64, Dimension), Unreadable> {
    let (base, power) = match word.char_indices().next_back() {
        Some((at, '2' | '²')) => (&word[..at], 2),
        Some((at, '3' | '³')) => (&word[..at], 3),
        _ => (word, 1),
    };
    let base = base.trim_end_matches('^');
    let (scale, dimension) = symbol(base).ok_or_else(|| {
        let near = suggestion(base).map(|near| format!("{near}{}", &word[base.len()..]));
        Unreadable::NoUnit(word.to_string(), near)
    })?;
    Ok((scale.powi(power), dimension.map(|exponent| exponent.saturating_mul(power as i8))))
}

fn symbol(word: &str) -> Option<(f64, Dimension)> {
    spellings().find(|spelling| spelling.is(word)).map(|spelling| (spelling.scale, spelling.dimension))
}

/// A unit as it may be written: a prefix, or none, and a symbol.
#[derive(Clone, Copy)]
struct Spelling {
    prefix: &'static str,
    symbol: &'static str,
    scale: f64,
    dimension: Dimension,
}

impl Spelling {
    fn is(&self, word: &str) -> bool {
        word.strip_prefix(self.prefix) == Some(self.symbol)
    }

    /// Whether `word` begins as this unit does, case included: with its prefix,
    /// or without one and with the same letter.
    fn opens(&self, word: &str) -> bool {
        match self.prefix {
            "" => word.chars().next() == self.symbol.chars().next(),
            prefix => word.starts_with(prefix),
        }
    }
}

impl fmt::Display for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.symbol)
    }
}

/// Every unit that is read. Things that are counted take no prefix below one:
/// who writes `100 mbit/s` means millions, not thousandths.
fn spellings() -> impl Iterator<Item = Spelling> {
    let plain = SYMBOLS.iter().map(|&(symbol, scale, dimension, _)| Spelling {
        prefix: "",
        symbol,
        scale,
        dimension,
    });
    let prefixed = PREFIXES.iter().flat_map(|&(prefix, factor)| {
        let symbols = SYMBOLS.iter().filter(move |(_, _, dimension, prefixed)| {
            *prefixed && (factor > 1.0 || !is_counted(*dimension))
        });
        symbols.map(move |&(symbol, scale, dimension, _)| Spelling {
            prefix,
            symbol,
            scale: factor * scale,
            dimension,
        })
    });
    plain.chain(prefixed)
}

/// Whether a dimension is a number of bits, operations, gates, samples or tokens.
fn is_counted(dimension: Dimension) -> bool {
    let [bit, _, _, _, counted @ ..] = dimension;
    bit > 0 || counted.iter().any(|power| *power > 0)
}

/// The unit that was meant, where only its letters are wrong and never its
/// size: all of the nearest spellings that keep the prefix must agree, or none
/// is offered. `Gbti` is `Gbit`; `gb` may be `Gb` or `GB`, so it is neither.
fn suggestion(word: &str) -> Option<String> {
    let folded = word.to_lowercase();
    let distance =
        |spelling: &Spelling| strsim::damerau_levenshtein(&folded, &spelling.to_string().to_lowercase());
    let least = spellings().map(|spelling| distance(&spelling)).min()?;
    let nearest: Vec<Spelling> = spellings()
        .filter(|spelling| distance(spelling) == least)
        .filter(|spelling| least == 0 || spelling.opens(word))
        .collect();
    let first = nearest.first()?;
    let agree = nearest.iter().all(|other| (other.scale, other.dimension) == (first.scale, first.dimension));
    let close = least <= 1 + first.to_string().chars().count() / 3;
    (agree && close).then(|| first.to_string())
}

/// A dimension in words where it has a name, else as powers of base units.
pub(crate) struct Describe(pub Dimension);

impl fmt::Display for Describe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, name)) = NAMES.iter().find(|(dimension, _)| *dimension == self.0) {
            return f.write_str(name);
        }
        let powers = BASES.iter().zip(self.0).filter(|(_, power)| *power != 0);
        let words: Vec<String> = powers
            .map(|(base, power)| if power == 1 { (*base).into() } else { format!("{base}^{power}") })
            .collect();
        write!(f, "a quantity in {}", words.join("·"))
    }
}

const NAMES: &[(Dimension, &str)] = &[
    (NONE, "a plain number"),
    (BIT, "an amount of data"),
    (SECOND, "a time"),
    (METRE, "a length"),
    ([0, 0, 2, 0, 0, 0, 0, 0], "an area"),
    (JOULE, "an energy"),
    (WATT, "a power"),
    (HERTZ, "a frequency"),
    (BIT_PER_SECOND, "a data rate"),
    (FLOP, "an amount of arithmetic"),
    (FLOP_PER_SECOND, "an arithmetic rate"),
    ([-1, 0, 0, 1, 0, 0, 0, 0], "an energy per bit"),
    (GATE, "a number of gates"),
    (SAMPLE, "a number of samples"),
    ([0, -1, 0, 0, 0, 0, 1, 0], "a sample rate"),
    ([1, 0, 0, 0, 0, 0, -1, 0], "a number of bits per value"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> f64 {
        let measure = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        measure.number * measure.scale
    }

    #[test]
    fn units_mean_what_people_mean() {
        for (text, expected) in [
            ("100 Gbit/s", 100e9),
            ("100Gb/s", 100e9),
            ("100 Gbps", 100e9),
            ("900 GB/s", 7.2e12),
            ("800 GBps", 6.4e12),
            ("1 cm2", 1e-4),
            ("2.5 cm²", 2.5e-4),
            ("0.97 mm2", 0.97e-6),
            ("0.97 mm²", 0.97e-6),
            ("0.97 mm^2", 0.97e-6),
            ("40 um2", 40e-12),
            ("80 GB", 640e9),
            ("1 GiB", 8.0 * 1_073_741_824.0),
            ("7 nm", 7e-9),
            ("312 TFLOP/s", 312e12),
            ("312 TFLOPS", 312e12),
            ("400 W", 400.0),
            ("9 us", 9e-6),
            ("9 µs", 9e-6),
            ("4.5 pJ/bit", 4.5e-12),
            ("36 pJ/B", 4.5e-12),
            ("1.41 GHz", 1.41e9),
            ("1e-3 W", 1e-3),
            ("1_000 kgate", 1e6),
            ("5 min", 300.0),
            ("80 %", 0.8),
            ("1.7×", 1.7),
            ("2.9 bit/value", 2.9),
        ] {
            let read = value(text);
            assert!((read - expected).abs() <= expected * 1e-12, "{text} read as {read}");
        }
    }

    #[test]
    fn a_misspelt_unit_gets_the_nearest_right_one() {
        assert_eq!(parse("5 Gbti/s"), Err(Unreadable::NoUnit("Gbti".into(), Some("Gbit".into()))));
        assert_eq!(parse("5 mmm2"), Err(Unreadable::NoUnit("mmm2".into(), Some("mm2".into()))));
        assert_eq!(parse("2 ghz"), Err(Unreadable::NoUnit("ghz".into(), Some("GHz".into()))));
        assert_eq!(parse("fast"), Err(Unreadable::NoNumber));
    }

    #[test]
    fn what_is_counted_has_no_fractions() {
        // `100 mbit/s` was read as a tenth of a bit a second.
        for text in ["100 mbit/s", "1 mbps", "5 mB", "3 nFLOP", "7 mgates"] {
            assert!(matches!(parse(text), Err(Unreadable::NoUnit(..))), "{text}");
        }
        assert!(parse("5 mW").is_ok() && parse("5 pJ/bit").is_ok() && parse("5 Mbit").is_ok());
    }

    /// The words one edit away from each unit, in every way people mistype.
    fn misspelt(word: &str) -> Vec<String> {
        let letters: Vec<char> = word.chars().collect();
        let mut words = vec![word.to_lowercase(), word.to_uppercase()];
        for at in 0..letters.len() {
            let without: String =
                letters.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, c)| c).collect();
            words.push(without);
            for other in ['a', 'c', 'd', 'g', 'k', 'm', 't', 'z', 'B', 'D'] {
                let mut changed = letters.clone();
                changed[at] = other;
                words.push(changed.iter().collect());
                let mut longer = letters.clone();
                longer.insert(at, other);
                words.push(longer.into_iter().collect());
            }
            if at + 1 < letters.len() {
                let mut swapped = letters.clone();
                swapped.swap(at, at + 1);
                words.push(swapped.into_iter().collect());
            }
        }
        words
    }

    #[test]
    fn no_suggestion_changes_a_value_by_its_prefix() {
        let mut offered = 0;
        for unit in ["Gbit", "GB", "Mbps", "TFLOPS", "mm", "nm", "um", "kgate", "pJ", "GHz", "ms", "us", "MW"]
        {
            for word in misspelt(unit) {
                let Err(Unreadable::NoUnit(_, Some(near))) = parse(&format!("1 {word}")) else { continue };
                offered += 1;
                let (found, _) = symbol(&near).unwrap();
                // What stands before the symbol of the suggestion stands in the word, case included,
                // unless nothing but case is wrong.
                let prefix = PREFIXES.iter().map(|(prefix, _)| *prefix).filter(|p| near.starts_with(p));
                let kept = near.to_lowercase() == word.to_lowercase()
                    || prefix.clone().any(|prefix| word.starts_with(prefix))
                    || near.chars().next() == word.chars().next();
                assert!(kept, "{word} suggests {near} ({found})");
            }
        }
        assert!(offered > 50, "only {offered} suggestions: the test has lost its subject");
        for ambiguous in ["gb", "mhz", "tb", "dm2", "ym", "mbti"] {
            let Err(Unreadable::NoUnit(_, near)) = parse(&format!("1 {ambiguous}")) else {
                panic!("{ambiguous} is read")
            };
            assert_eq!(near, None, "{ambiguous}");
        }
    }

    #[test]
    fn dimensions_tell_units_apart() {
        let dimension = |text: &str| parse(text).unwrap().dimension;
        assert_eq!(dimension("1 J/s"), dimension("3 W"));
        assert_eq!(dimension("1 FLOPS"), dimension("1 GFLOP/s"));
        assert_ne!(dimension("1 mm"), dimension("1 mm2"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn every_prefix_scales_every_unit(number in 0.001f64..1e6) {
            for (prefix, factor) in PREFIXES {
                let read = value(&format!("{number} {prefix}J"));
                prop_assert!((read / (number * factor) - 1.0).abs() < 1e-12);
            }
        }
    }
}
