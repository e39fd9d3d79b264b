//! Rates of `trinity eval --sweep`, as people write them.

use crate::failure::Failure;

/// Rates out of a list such as `2,2.5,3` or `2,2.25,…,4.5`.
pub fn rates(words: &[String]) -> Result<Vec<f64>, Failure> {
    let number = |word: &str| {
        word.trim().parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
            Failure::input(format_args!("--sweep: `{word}` is no number of bits per value"))
                .help("give rates as 2,2.5,3 or as 2,2.25,…,4.5")
        })
    };
    let mut rates: Vec<f64> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !["…", "..."].contains(&word.trim()) {
            rates.push(number(word)?);
            continue;
        }
        let ([.., before, last], Some(end)) = (rates.as_slice(), words.next()) else {
            return Err(Failure::input("--sweep: `…` stands between two rates and a last one")
                .help("such as 2,2.25,…,4.5"));
        };
        let (step, last, end) = (last - before, *last, number(end)?);
        if step <= 0.0 || end <= last || (end - last) / step > 1000.0 {
            return Err(Failure::input(format_args!("--sweep: steps of {step} do not lead to {end}")));
        }
        let steps = ((end - last) / step + 1e-9).floor() as usize;
        rates.extend((1..=steps).map(|count| last + step * count as f64));
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(String::from).collect()
    }

    #[test]
    fn rates_are_lists_or_progressions() {
        assert_eq!(rates(&words("2,2.5,3")).unwrap(), [2.0, 2.5, 3.0]);
        assert_eq!(rates(&words("2,2.5,…,4")).unwrap(), [2.0, 2.5, 3.0, 3.5, 4.0]);
        assert_eq!(rates(&words("1,2,...,4,8")).unwrap(), [1.0, 2.0, 3.0, 4.0, 8.0]);
        for bad in ["2,x", "…,3", "2,…,3", "2,1,…,3", "2,2.5,…", "-1", "2,2,…,4"] {
            assert!(rates(&words(bad)).is_err(), "{bad}");
        }
    }
}
