//! What starting a kernel costs: one after the other, as a node of a graph,
//! and there and back.

use super::lab::{Lab, REPEATS};
use super::points::{Compute, LaunchPoint};
use crate::error::{During, Error};
use crate::stats::Spread;
use std::time::Instant;

/// Enough that the first and the last do not count.
const LAUNCHES: usize = 1000;

pub(super) fn run(lab: &Lab, compute: &mut Compute) -> Result<(), Error> {
    let address = lab.at(0, 256)?;
    let tiny = |_| lab.launch_stream(&lab.tiny, [address; 3], 1);
    let graph = lab.chained_s(LAUNCHES, &mut { tiny })?;
    let wait = || lab.stream().synchronize().during("cuStreamSynchronize");
    let wall = |count: usize, each: bool| -> Result<f64, Error> {
        wait()?;
        let start = Instant::now();
        for i in 0..count {
            tiny(i)?;
            if each {
                wait()?;
            }
        }
        wait()?;
        Ok(start.elapsed().as_secs_f64() / count as f64)
    };
    let repeated = |each: bool| -> Result<Spread, Error> {
        let times = (0..REPEATS).map(|_| wall(LAUNCHES, each)).collect::<Result<Vec<_>, _>>()?;
        Spread::timed("timing", &times)
    };
    let (eager, round_trip) = (repeated(false)?, repeated(true)?);
    compute.launches = [("graph", graph), ("eager", eager), ("round trip", round_trip)]
        .map(|(how, seconds)| LaunchPoint { how: how.into(), seconds })
        .to_vec();
    Ok(())
}
