//! Work on every item of a list: on the caller's threads where there are any,
//! one after the other where there are none. The order of results is the
//! list's either way.

#[cfg(feature = "threads")]
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    use rayon::prelude::*;
    items.par_iter().map(work).collect()
}

#[cfg(not(feature = "threads"))]
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    items.iter().map(work).collect()
}
