//! Engine sessions at work side by side: each on a thread of its own, open
//! (and warm) from pass to pass, all starting a pass together.
//!
//! Knows nothing of what a session does; decoding, encoding and their overlap
//! with other work are all timed through here.

use crate::Error;
use crate::stats::Spread;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// One session: works through that many pictures.
pub(crate) type Lane<'l> = Box<dyn FnMut(usize) -> Result<(), Error> + 'l>;

/// Sessions that wait for orders.
pub(crate) struct WorkerPool {
    orders: Vec<Sender<usize>>,
    done: Receiver<Result<Done, Error>>,
}

/// What one session spent on a pass.
struct Done {
    wall_s: f64,
    host_s: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    /// From the start to the end of the last session, and of what ran beside them.
    pub wall_s: f64,
    /// The session that took longest.
    pub slowest_s: f64,
    /// CPU seconds of the session thread that needed most.
    pub host_s: f64,
}

impl WorkerPool {
    /// Every session works through `pictures`, while `beside` runs on this thread.
    pub fn pass<T>(&self, pictures: usize, beside: impl FnOnce() -> T) -> Result<(Pass, T), Error> {
        let start = Instant::now();
        for order in &self.orders {
            // A closed channel is a session that panicked; its missing answer says so below.
            let _ = order.send(pictures);
        }
        let value = beside();
        let mut pass = Pass { wall_s: 0.0, slowest_s: 0.0, host_s: 0.0 };
        let mut outcome = Ok(());
        // Every answer is awaited even after an error, so that no session is left at work.
        for _ in &self.orders {
            match self.done.recv() {
                Ok(Ok(done)) => {
                    pass.slowest_s = pass.slowest_s.max(done.wall_s);
                    pass.host_s = pass.host_s.max(done.host_s);
                }
                Ok(Err(error)) => outcome = outcome.and(Err(error)),
                Err(_) => {
                    return Err(Error::CorruptStream { what: "a session's thread panicked".into() });
                }
            }
        }
        pass.wall_s = start.elapsed().as_secs_f64();
        outcome.map(|()| (pass, value))
    }
}

/// Opens `sessions` lanes, lets `drive` command them, and closes them.
pub(crate) fn with_pool<'l, R>(
    sessions: u32,
    open: &(dyn Fn() -> Result<Lane<'l>, Error> + Sync),
    drive: impl FnOnce(&WorkerPool) -> Result<R, Error>,
) -> Result<R, Error> {
    std::thread::scope(|scope| {
        let (answer, done) = channel();
        let mut orders = Vec::with_capacity(sessions as usize);
        for _ in 0..sessions {
            let (order, pictures) = channel::<usize>();
            orders.push(order);
            let answer = answer.clone();
            scope.spawn(move || {
                let mut lane = open();
                for pictures in pictures {
                    let (start, before) = (Instant::now(), thread_cpu_s());
                    let worked = match &mut lane {
                        Ok(lane) => lane(pictures),
                        // An error is told once; the drive ends with it.
                        Err(_) => std::mem::replace(&mut lane, Ok(Box::new(|_| Ok(())))).map(|_| ()),
                    };
                    let done =
                        Done { wall_s: start.elapsed().as_secs_f64(), host_s: thread_cpu_s() - before };
                    if answer.send(worked.map(|()| done)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(answer);
        // Dropping the pool closes the orders, which ends the threads.
        drive(&WorkerPool { orders, done })
    })
}

/// Wall seconds of `repeats` passes after a warm-up, and the last one's host
/// seconds. `while_busy` runs once, during the last pass.
pub(crate) fn throughput(
    pool: &WorkerPool,
    pictures: usize,
    repeats: usize,
    mut while_busy: impl FnMut(),
) -> Result<(Spread, f64), Error> {
    pool.pass(pictures, || ())?;
    let (mut times, mut host_s) = (Vec::with_capacity(repeats), 0.0);
    for repeat in 1..=repeats {
        let (pass, ()) = pool.pass(pictures, || {
            if repeat == repeats {
                while_busy();
            }
        })?;
        times.push(pass.wall_s);
        host_s = pass.host_s;
    }
    Ok((Spread::timed("throughput", &times)?, host_s))
}

/// CPU seconds of this thread, from the kernel's accounting; 0 where there is none.
fn thread_cpu_s() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/thread-self/schedstat") else { return 0.0 };
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_session_works_through_every_pass() {
        let worked = AtomicUsize::new(0);
        let open = || -> Result<Lane<'_>, Error> {
            Ok(Box::new(|n| {
                worked.fetch_add(n, Ordering::Relaxed);
                Ok(())
            }))
        };
        let ((), beside) = with_pool(3, &open, |pool| {
            pool.pass(5, || ())?;
            let (pass, beside) = pool.pass(2, || 7)?;
            assert!(pass.slowest_s <= pass.wall_s);
            Ok(((), beside))
        })
        .unwrap();
        assert_eq!((worked.load(Ordering::Relaxed), beside), (21, 7));
    }

    #[test]
    fn a_session_that_fails_ends_the_run_with_its_error_and_hangs_nothing() {
        let opened = AtomicUsize::new(0);
        let open = || -> Result<Lane<'_>, Error> {
            if opened.fetch_add(1, Ordering::Relaxed) == 1 {
                return Err(Error::CorruptStream { what: "the second session".into() });
            }
            Ok(Box::new(|_| Ok(())))
        };
        let outcome = with_pool(3, &open, |pool| throughput(pool, 1, 3, || ()));
        assert!(outcome.is_err_and(|e| e.to_string().contains("the second session")));
    }
}
