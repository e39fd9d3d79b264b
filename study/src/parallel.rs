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

/// Like [`map`], with each thread on one item at a time and no part of
/// another's: in a shared pool, a thread that waits for a piece of its item
/// would begin a second one, and hold both in memory.
#[cfg(feature = "threads")]
pub fn map_apart<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    let threads = rayon::current_num_threads();
    if items.len() < threads {
        // Too few to share out: the threads share the pieces of each instead.
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let take = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = work(item);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // Without a pool of its own a worker would use the shared one; where
            // none can be had, the others take its items.
            if let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(1).build() {
                let take = &take;
                // Nor where there is no memory left for a thread.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || pool.install(take));
            }
        }
    });
    // What no worker took.
    take();
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(not(feature = "threads"))]
pub fn map_apart<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    map(items, work)
}

#[cfg(test)]
mod tests {
    #[test]
    fn apart_or_not_the_order_is_the_lists() {
        for len in [0usize, 1, 3, 100] {
            let items: Vec<usize> = (0..len).collect();
            let squares: Vec<usize> = items.iter().map(|item| item * item).collect();
            assert_eq!(super::map_apart(&items, |item| item * item), squares);
            assert_eq!(super::map(&items, |item| item * item), squares);
        }
    }
}
