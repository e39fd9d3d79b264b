//! Every all-intra stream of the shared conformance set decodes to the MD5 in
//! its manifest, and each picture agrees with the hash sent with it.

use crate::manifest::{folder, hold, md5_of};
use trinity_h265::{Decoded, Error, HashCheck, frames};

/// Palette mode, a screen-content tool. The MD5 in the manifest is that of the
/// wrong picture a decoder shows that does not know sps_scc_extension().
const PALETTE_STREAM: &str = "oxide_r413-palette-init.hevc";

#[test]
fn screen_content_is_refused_with_the_nal_unit_named() {
    let Some(folder) = folder() else { return };
    let stream = std::fs::read(folder.join("h265").join(PALETTE_STREAM)).unwrap();
    let error = trinity_h265::decode(&stream).unwrap_err();
    assert_eq!(
        error,
        Error::Unsupported { tool: "screen content coding (palette mode)", nal: 3, offset: 86 }
    );
}

#[test]
fn every_stream_decodes_to_the_md5_in_its_manifest() {
    let checked = |decoded: Decoded| match decoded.hash {
        HashCheck::Mismatch { component } => {
            Err(format!("component {component} differs from its picture hash"))
        }
        HashCheck::Absent | HashCheck::Match => Ok(decoded.frame),
    };
    hold("h265", 100, PALETTE_STREAM, |stream| {
        md5_of(frames(stream).map(|decoded| decoded.map_err(|error| error.to_string()).and_then(checked)))
    });
}
