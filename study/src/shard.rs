//! Part of a long list of work, so that many machines can share it out.

use std::str::FromStr;

/// Part `index` of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    count: u64,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Part `index` of `count`, where there is such a part.
    pub fn new(index: u64, count: u64) -> Option<Self> {
        (index < count && count <= 99_999).then_some(Self { index, count })
    }

    /// The items of this part out of `len`; parts differ by at most one item.
    pub fn range(self, len: u64) -> std::ops::Range<u64> {
        let at = |k: u64| (u128::from(len) * u128::from(k) / u128::from(self.count)) as u64;
        at(self.index)..at(self.index + 1)
    }

    /// Whether item `at` of a list belongs to this part, where neighbours in the
    /// list take about as long: every `count`-th is.
    pub fn takes(self, at: usize) -> bool {
        at as u64 % self.count == self.index
    }

    /// Part of how many.
    pub fn count(self) -> u64 {
        self.count
    }

    /// What files of this part are called.
    pub fn stem(self) -> String {
        format!("shard-{:05}-of-{:05}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        parts
            .and_then(|(index, count)| Self::new(index, count))
            .ok_or_else(|| "expected I/N with 0 <= I < N <= 99999, such as 0/4".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_everything_once() {
        for count in [1, 2, 3, 7] {
            let all: Vec<Shard> = (0..count).map(|index| Shard::new(index, count).unwrap()).collect();
            assert_eq!(
                all.iter().flat_map(|part| part.range(23)).collect::<Vec<_>>(),
                (0..23).collect::<Vec<_>>()
            );
            assert!((0..23).all(|at| all.iter().filter(|part| part.takes(at)).count() == 1));
        }
        assert!("3/3".parse::<Shard>().is_err() && "-1/3".parse::<Shard>().is_err());
    }
}
