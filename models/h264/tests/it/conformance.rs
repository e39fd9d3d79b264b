//! Every all-intra H.264 stream of the shared conformance set decodes to the MD5 in its manifest.

use crate::manifest::{hold, md5_of};

#[test]
fn every_stream_of_the_manifest_decodes_to_its_md5() {
    hold("h264", 0, "no exception", |stream| md5_of(trinity_h264::frames(stream)));
}
