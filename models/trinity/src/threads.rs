//! Work on many items, in parallel where the feature `threads` is on. The pool
//! is the caller's: whoever installs one decides how many threads there are.

/// Runs `job` on every item, in parallel where threads are available, and
/// keeps the order.
#[cfg(feature = "threads")]
pub fn in_parallel<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    use rayon::prelude::*;
    if items.len() < 2 || rayon::current_num_threads() == 1 {
        return items.iter().map(job).collect();
    }
    items.par_iter().map(job).collect()
}

/// Runs `job` on every item, one after the other.
#[cfg(not(feature = "threads"))]
pub fn in_parallel<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    items.iter().map(job).collect()
}
