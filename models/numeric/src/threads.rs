//! Work on many items, in parallel where the feature `threads` is on.
//!
//! The pool is the caller's (rayon's): whoever installs one decides how many
//! threads there are, and nothing here starts another.

/// Threads that work may be spread over.
pub fn available() -> usize {
    #[cfg(feature = "threads")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "threads"))]
    1
}

/// What an encoder that was asked for `threads` (0: as many as there are) may use.
pub fn granted(threads: usize) -> usize {
    if threads == 0 { available() } else { threads.min(available()) }
}

/// Runs `job` on every item, in parallel where threads are available, and
/// keeps the order.
pub fn map<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    #[cfg(feature = "threads")]
    if items.len() > 1 && available() > 1 {
        use rayon::prelude::*;
        return items.par_iter().map(job).collect();
    }
    items.iter().map(job).collect()
}

/// Runs `job` once on each of up to `count` threads; returns when all have ended.
pub fn worker_pool(count: usize, job: impl Fn() + Sync + Send) {
    #[cfg(feature = "threads")]
    if count > 1 && available() > 1 {
        rayon::scope(|scope| (0..count).for_each(|_| scope.spawn(|_| job())));
        return;
    }
    let _ = count;
    job();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_keep_the_order_of_their_items() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(map(&items, |i| i * i), items.iter().map(|i| i * i).collect::<Vec<_>>());
    }

    #[test]
    fn a_pool_works_whatever_its_size() {
        for count in [0, 1, 2, 9] {
            let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
            worker_pool(count, || {
                while next.fetch_add(1, Ordering::Relaxed) < 100 {
                    sum.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(sum.into_inner(), 100, "{count}");
        }
    }
}
