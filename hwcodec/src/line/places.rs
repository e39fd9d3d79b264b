//! Many tensors in one launch: where they lie, as the kernels are told.
//!
//! Knows addresses alone. They go to a kernel by value, so that nothing is copied
//! to the device for them and a CUDA graph keeps them.

use super::{Address, MOST_LISTED};
use crate::error::Error;

/// Where tensors of one plan lie on the device, or their streams.
#[derive(Debug, Clone, Copy)]
pub enum Places<'a> {
    /// One after the other, so many bytes apart.
    Even { first: Address, stride: u64, count: usize },
    /// Each at its own address.
    Listed(&'a [Address]),
}

impl<'a> Places<'a> {
    pub fn one(at: Address) -> Self {
        Self::Even { first: at, stride: 0, count: 1 }
    }

    /// The plainer of both ways to say where all of these are.
    pub fn of(addresses: &'a [Address]) -> Self {
        let stride = match addresses {
            [first, second, ..] if second > first => second - first,
            _ => 0,
        };
        let first = addresses.first().copied().unwrap_or(0);
        let even = addresses.iter().enumerate().all(|(n, &at)| at == first + n as u64 * stride);
        if even { Self::Even { first, stride, count: addresses.len() } } else { Self::Listed(addresses) }
    }

    pub fn count(&self) -> usize {
        match self {
            Self::Even { count, .. } => *count,
            Self::Listed(addresses) => addresses.len(),
        }
    }

    pub(super) fn at(&self, item: usize) -> Address {
        match self {
            Self::Even { first, stride, .. } => first + item as u64 * stride,
            Self::Listed(addresses) => addresses[item],
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        matches!(self, Self::Listed(_))
    }

    /// `Places` of `common.cu` for some of them.
    fn argument(&self, first: usize, count: usize, listed: bool) -> Vec<u64> {
        if !listed {
            let stride = if let Self::Even { stride, .. } = self { *stride } else { 0 };
            return vec![self.at(first), stride];
        }
        let mut addresses: Vec<u64> = (first..first + count).map(|item| self.at(item)).collect();
        addresses.resize(MOST_LISTED, 0);
        addresses
    }
}

/// Tensors of one launch: what is read and what is written.
#[derive(Debug)]
pub(super) struct Group {
    pub first: usize,
    pub count: usize,
    pub sources: Vec<u64>,
    pub targets: Vec<u64>,
}

/// Tensors by launches, and whether these list them.
pub(super) fn groups(sources: &Places<'_>, targets: &Places<'_>) -> Result<(bool, Vec<Group>), Error> {
    let count = sources.count();
    if targets.count() != count {
        let what = format!("{count} tensors");
        let reason = format!("{} places for what comes of them", targets.count());
        return Err(Error::Encode { what, reason });
    }
    let listed = sources.is_listed() || targets.is_listed();
    let most = if listed { MOST_LISTED } else { count.max(1) };
    let group = |first: usize| {
        let count = most.min(count - first);
        let sources = sources.argument(first, count, listed);
        Group { first, count, sources, targets: targets.argument(first, count, listed) }
    };
    Ok((listed, (0..count).step_by(most).map(group).collect()))
}

/// `Counts` of `common.cu` for the tensors of a group, of which `words` knows all.
pub(super) fn counts(listed: bool, group: &Group, words: impl Fn(usize) -> u32) -> Vec<u32> {
    if !listed {
        return vec![words(group.first)];
    }
    let mut all: Vec<u32> = (group.first..group.first + group.count).map(words).collect();
    all.resize(MOST_LISTED, 0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_places_are_found_and_others_are_listed() {
        assert!(matches!(Places::of(&[64, 96, 128]), Places::Even { first: 64, stride: 32, count: 3 }));
        assert!(matches!(Places::of(&[7]), Places::Even { first: 7, count: 1, .. }));
        assert!(Places::of(&[64, 96, 127]).is_listed());
        assert!(Places::of(&[96, 64]).is_listed());
        assert_eq!(Places::of(&[]).count(), 0);
    }

    #[test]
    fn a_list_goes_in_launches_of_as_many_as_one_is_told() {
        let sources: Vec<u64> = (0..2500u64).map(|n| n * n).collect();
        let (listed, groups) =
            groups(&Places::of(&sources), &Places::Even { first: 0, stride: 8, count: 2500 }).unwrap();
        assert!(listed);
        assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [1024, 1024, 452]);
        assert_eq!((groups[2].sources[0], groups[2].targets[451]), (2048 * 2048, 8 * 2499));
        assert!(super::groups(&Places::one(0), &Places::of(&sources)).is_err());
    }
}
