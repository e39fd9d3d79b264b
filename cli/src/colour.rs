//! One colour for a codec, on every chart of every page.

use trinity_tensor::codec::table::TABLE;

/// Scenarios with a colour of their own beside the codecs of [`TABLE`]; the neutral one is for
/// what has no codec.
const KNOWN: &[(&str, &str)] = &[
    ("uncompressed", NEUTRAL),
    ("raw", NEUTRAL),
    ("fp16", NEUTRAL),
    ("order-0 entropy", "#9aa3ad"),
    ("gaussian bound", "#6b7480"),
    ("three-in-one", "#4c78a8"),
    ("nvenc", "#3aa6a0"),
    ("nvdec", "#3aa6a0"),
    ("line-sm", "#a0c850"),
    ("paper", "#86a5c9"),
    ("best-baseline", "#5d8aa8"),
];

const NEUTRAL: &str = "#8a929c";

/// Colours for names that nobody foresaw.
const OTHERS: [&str; 12] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf",
    "#6b6ecf", "#b5695a", "#637939",
];

/// A colour for each of the names of a chart, no two alike while there are any
/// left; a name that is known has the same on every chart.
pub fn colours<S: AsRef<str>>(names: &[S]) -> Vec<&'static str> {
    let mut given: Vec<&'static str> = Vec::new();
    for name in names {
        let name = name.as_ref();
        let listed = TABLE.iter().filter_map(|listing| Some((listing.name, listing.colour?)));
        let known = listed.chain(KNOWN.iter().copied()).find(|(known, _)| *known == name);
        let known = known.map(|(_, colour)| colour);
        let colour = known.unwrap_or_else(|| {
            // Where the search begins is the name's own, so that lists that differ little agree.
            let start = name.bytes().fold(7usize, |hash, byte| hash.wrapping_mul(31) + usize::from(byte));
            let choices = (0..OTHERS.len()).map(|step| OTHERS[(start + step) % OTHERS.len()]);
            choices.clone().find(|colour| !given.contains(colour)).unwrap_or(OTHERS[start % OTHERS.len()])
        });
        given.push(colour);
    }
    given
}

/// The colour of one name alone.
pub fn colour(name: &str) -> &'static str {
    colours(&[name])[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_codec_keeps_its_colour_in_any_company() {
        let alone = colour("h265");
        assert_eq!(colours(&["a", "b", "h265"])[2], alone);
        assert_eq!(colours(&["h265", "c"])[0], alone);
        assert_ne!(alone, colour("h264"));
    }

    #[test]
    fn strangers_are_told_apart() {
        let names: Vec<String> = (0..OTHERS.len()).map(|at| format!("codec {at}")).collect();
        let mut given = colours(&names);
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), OTHERS.len());
    }
}
