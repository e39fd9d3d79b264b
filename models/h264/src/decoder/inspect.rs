//! Taking a stream apart: decodes it and collects what the decoder noted.

use super::frames;
use super::inspection::Inspection;
use crate::Error;
use crate::syntax::parameter_sets::{Pps, Sps};

/// Decodes a stream to see what is in it.
///
/// # Errors
/// As [`crate::decode`].
pub fn inspect(stream: &[u8]) -> Result<Inspection, Error> {
    let mut decoded = frames(stream);
    let (mut frames, mut size) = (0, (0, 0));
    for frame in &mut decoded {
        let frame = frame?;
        size = (frame.width(), frame.height());
        frames += 1;
    }
    let state = decoded.decoder.state;
    let mut sps: Vec<Sps> = state.sps.values().map(|sps| (**sps).clone()).collect();
    sps.sort_by_key(|sps| sps.id);
    let mut pps: Vec<Pps> =
        state.pps.values().filter_map(|stored| Some(stored.parsed.as_ref()?.pps.clone())).collect();
    pps.sort_by_key(|pps| pps.id);
    Ok(Inspection { sps, pps, frames, size, bytes: stream.len(), ..state.inspection })
}
