//! Key logs inside capture files.

use std::path::PathBuf;

use grpcdiag_core::capture_file::{CaptureReader, Source};

/// Key logs that pcapng files hold before their first packet, where tools put them. Standard input is not read for
/// them, and what cannot be opened is told when it is read.
pub(super) fn leading_secrets(paths: &[String]) -> Vec<Vec<u8>> {
    const NSS_KEY_LOG: u32 = 0x544c_534b;
    let of_file = |path: &String| {
        let mut reader = CaptureReader::open(vec![Source::Path(PathBuf::from(path))]).ok()?;
        reader.next_packet();
        let kept = reader.info().secrets.iter().filter(|secrets| secrets.kind == NSS_KEY_LOG);
        Some(kept.map(|secrets| secrets.data.to_vec()).collect::<Vec<_>>())
    };
    let regular = |path: &&String| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    paths.iter().filter(regular).filter_map(of_file).flatten().collect()
}
