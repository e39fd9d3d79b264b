//! Quantities with a unit, one type for each kind, so that nobody adds watts
//! to square millimetres.
//!
//! Each reads the text a datasheet would print and hands out a number whose
//! unit is in the name of the accessor. None may be negative, infinite or NaN.

use crate::{
    diagnostic::Complaint,
    kind::with_source,
    units::{self, Describe, Unreadable},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};
use std::{borrow::Cow, fmt, str::FromStr};

/// Reads `text` in the unit `canonical`; the complaint names what it is instead.
fn measure(text: &str, canonical: &str, what: &str, example: &str) -> Result<f64, Complaint> {
    let expected = format!("{what} such as {example}");
    let unreadable = |error| match error {
        Unreadable::NoNumber => {
            Complaint::new(format_args!("`{text}` does not start with a number")).expected(&expected)
        }
        Unreadable::NoUnit(word, near) => {
            let complaint = Complaint::new(format_args!("`{word}` is no unit")).expected(&expected);
            match near {
                Some(near) => complaint.help(format_args!("did you mean `{near}`?")),
                None => complaint,
            }
        }
    };
    let found = units::parse(text).map_err(unreadable)?;
    let wanted = units::parse(&format!("1 {canonical}")).map_err(unreadable)?;
    if found.dimension != wanted.dimension {
        let found = Describe(found.dimension);
        return Err(Complaint::new(format_args!("`{text}` is {found}, not {what}")).expected(&expected));
    }
    checked(found.number * (found.scale / wanted.scale), text, &expected)
}

fn checked(value: f64, text: &str, expected: &str) -> Result<f64, Complaint> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(Complaint::new(format_args!("`{text}` must be finite and not negative")).expected(expected))
    }
}

/// The schema of a quantity, which may be written with its source.
fn schema(plain: &serde_json::Value, what: &str, example: &str) -> Schema {
    let mut schema = with_source(plain);
    schema["description"] = format!("{what}, such as {example}").into();
    schema.try_into().unwrap_or_default()
}

/// Each line: the type, what it is called, an example, the unit it is kept in,
/// and for each further unit how many of it make how many of that.
macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident($what:literal, $example:literal) in $canonical:literal {
        $($accessor:ident / $constructor:ident : $units:literal = $per:literal),+ $(,)?
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
        pub struct $name(f64);

        impl $name {
            $(
                #[doc = concat!("The number of ", stringify!($accessor), ".")]
                pub const fn $accessor(self) -> f64 {
                    self.0 * $units / $per
                }

                #[doc = concat!("From a number of ", stringify!($accessor), ".")]
                pub const fn $constructor(number: f64) -> Self {
                    Self(number * $per / $units)
                }
            )+
        }

        impl FromStr for $name {
            type Err = Complaint;

            fn from_str(text: &str) -> Result<Self, Complaint> {
                measure(text, $canonical, $what, concat!("\"", $example, "\"")).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{} ", $canonical), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!($what, " such as \"", $example, "\""))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Reader)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schema(&serde_json::json!({ "type": "string" }), $what, concat!("\"", $example, "\""))
            }
        }
    )*};
}

quantities! {
    /// An amount of data.
    DataSize("an amount of data", "80 GB") in "B" {
        bytes / from_bytes: 1.0 = 1.0,
        bits / from_bits: 8.0 = 1.0,
        gb / from_gb: 1.0 = 1e9,
        gib / from_gib: 1.0 = 1_073_741_824.0,
    }
    /// Data per second.
    DataRate("a data rate", "100 Gbit/s") in "bit/s" {
        bit_per_s / from_bit_per_s: 1.0 = 1.0,
        byte_per_s / from_byte_per_s: 1.0 = 8.0,
        gbit_per_s / from_gbit_per_s: 1.0 = 1e9,
        gb_per_s / from_gb_per_s: 1.0 = 8e9,
    }
    /// A length, such as the name of a process node.
    Length("a length", "7 nm") in "nm" {
        nm / from_nm: 1.0 = 1.0,
        um / from_um: 1.0 = 1e3,
        mm / from_mm: 1.0 = 1e6,
    }
    /// Silicon area.
    Area("an area", "0.97 mm2") in "mm2" {
        mm2 / from_mm2: 1.0 = 1.0,
        um2 / from_um2: 1e6 = 1.0,
    }
    /// A time.
    Duration("a time", "9 us") in "s" {
        s / from_s: 1.0 = 1.0,
        ms / from_ms: 1e3 = 1.0,
        us / from_us: 1e6 = 1.0,
        ns / from_ns: 1e9 = 1.0,
    }
    /// Power.
    Power("a power", "400 W") in "W" {
        w / from_w: 1.0 = 1.0,
        mw / from_mw: 1e3 = 1.0,
    }
    /// Energy.
    Energy("an energy", "1.5 J") in "J" {
        j / from_j: 1.0 = 1.0,
        pj / from_pj: 1e12 = 1.0,
    }
    /// Energy to move or code one bit.
    EnergyPerBit("an energy per bit", "4.5 pJ/bit") in "pJ/bit" {
        pj_per_bit / from_pj_per_bit: 1.0 = 1.0,
        j_per_bit / from_j_per_bit: 1.0 = 1e12,
    }
    /// Energy of one floating-point operation.
    EnergyPerFlop("an energy per operation", "0.5 pJ/FLOP") in "pJ/FLOP" {
        pj_per_flop / from_pj_per_flop: 1.0 = 1.0,
        j_per_flop / from_j_per_flop: 1.0 = 1e12,
    }
    /// Floating-point operations per second.
    FlopRate("an arithmetic rate", "312 TFLOP/s") in "FLOP/s" {
        flop_per_s / from_flop_per_s: 1.0 = 1.0,
        tflop_per_s / from_tflop_per_s: 1.0 = 1e12,
    }
    /// A clock.
    Frequency("a frequency", "1.41 GHz") in "Hz" {
        hz / from_hz: 1.0 = 1.0,
        mhz / from_mhz: 1.0 = 1e6,
        ghz / from_ghz: 1.0 = 1e9,
    }
    /// Samples (pixels, values) per second.
    SampleRate("a sample rate", "498 Msample/s") in "sample/s" {
        sample_per_s / from_sample_per_s: 1.0 = 1.0,
        msample_per_s / from_msample_per_s: 1.0 = 1e6,
    }
    /// Logic size.
    GateCount("a number of gates", "120 kgate") in "gate" {
        gates / from_gates: 1.0 = 1.0,
        kgates / from_kgates: 1.0 = 1e3,
    }
    /// Density of logic.
    GateDensity("gates per area", "18 Mgate/mm2") in "gate/mm2" {
        gates_per_mm2 / from_gates_per_mm2: 1.0 = 1.0,
    }
    /// Density of memory.
    BitDensity("memory per area", "20 Mbit/mm2") in "bit/mm2" {
        bits_per_mm2 / from_bits_per_mm2: 1.0 = 1.0,
    }
    /// Power of silicon by its area.
    PowerDensity("power per area", "0.05 W/mm2") in "W/mm2" {
        w_per_mm2 / from_w_per_mm2: 1.0 = 1.0,
    }
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($what:literal, $example:literal, $range:expr))*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
        pub struct $name(f64);

        impl $name {
            /// Takes a number already known to be in range, such as a constant of a test.
            pub const fn new(number: f64) -> Self {
                Self(number)
            }

            /// The plain number: 0.8 for `"80 %"`.
            pub const fn get(self) -> f64 {
                self.0
            }

            fn checked(number: f64, text: &str) -> Result<Self, Complaint> {
                let expected = concat!($what, " such as ", $example);
                if $range.contains(&number) {
                    return checked(number, text, expected).map(Self);
                }
                Err(Complaint::new(format_args!("`{text}` is out of range")).expected(expected))
            }
        }

        impl FromStr for $name {
            type Err = Complaint;

            fn from_str(text: &str) -> Result<Self, Complaint> {
                Self::checked(measure(text, "×", $what, $example)?, text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!($what, " such as ", $example))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$name, E> {
                        $name::checked(number, &number.to_string()).map_err(E::custom)
                    }

                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$name, E> {
                        self.visit_f64(number as f64)
                    }

                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$name, E> {
                        self.visit_f64(number as f64)
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_f64(self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schema(&serde_json::json!({ "type": ["number", "string"] }), $what, $example)
            }
        }
    )*};
}

numbers! {
    /// A share of a whole, from 0 to 1.
    Fraction("a fraction from 0 to 1", "0.8 or \"80 %\"", (0.0..=1.0))
    /// A ratio, such as a speed-up.
    Ratio("a ratio", "2.5 or \"2.5×\"", (0.0..=f64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_read_in_the_unit_it_was_written_in_is_exact() {
        for number in [0.97, 169.7, 398.0, 4.5, 12.14, 1e-3] {
            assert_eq!(format!("{number} mm2").parse::<Area>().unwrap().mm2(), number);
            assert_eq!(format!("{number} pJ/bit").parse::<EnergyPerBit>().unwrap().pj_per_bit(), number);
            assert_eq!(format!("{number} nm").parse::<Length>().unwrap().nm(), number);
        }
        assert_eq!("80 GB".parse::<DataSize>().unwrap().gb(), 80.0);
        assert_eq!("100 Gbit/s".parse::<DataRate>().unwrap().gbit_per_s(), 100.0);
        assert_eq!("900 GB/s".parse::<DataRate>().unwrap().byte_per_s(), 900e9);
    }

    #[test]
    fn a_wrong_unit_says_what_it_is_and_what_was_wanted() {
        let complaint = "100 mm".parse::<Area>().unwrap_err().to_string();
        assert!(
            complaint.starts_with("`100 mm` is a length, not an area\nexpected an area such as \"0.97 mm2\"")
        );
    }

    #[test]
    fn nothing_negative_or_infinite_is_a_quantity() {
        for text in ["-1 mm2", "1e999 mm2", "NaN mm2", "inf mm2", "", "mm2", "1"] {
            assert!(text.parse::<Area>().is_err(), "{text}");
        }
        assert!("120 %".parse::<Fraction>().is_err());
        assert_eq!("80 %".parse::<Fraction>().unwrap().get(), 0.8);
        assert_eq!("1.7×".parse::<Ratio>().unwrap().get(), 1.7);
    }

    #[test]
    fn what_is_written_reads_back() {
        let area: Area = "0.97 mm2".parse().unwrap();
        assert_eq!(area.to_string().parse::<Area>().unwrap(), area);
        let rate: DataRate = "3.35 TB/s".parse().unwrap();
        assert_eq!(rate.to_string().parse::<DataRate>().unwrap(), rate);
    }
}
