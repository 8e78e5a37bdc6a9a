//! The stories of hpack-test-case: what other encoders made of recorded headers.

use serde_json::Value;
use std::path::{Path, PathBuf};

use super::{Peer, hex};

/// The folder with the stories: the one named, the whole set beside the repository, or the part that comes with it.
fn folder() -> PathBuf {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = core.join("../../fixtures/conformance/hpack-test-case");
    let whole = core.join("../../../shared/hpack-test-case");
    match std::env::var_os("HPACK_TEST_CASE_DIR") {
        Some(named) => PathBuf::from(named),
        None if whole.is_dir() => whole,
        None => shipped,
    }
}

/// Decodes every story of an encoder and gives the number of header blocks.
fn stories(dir: &Path) -> usize {
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| story(path)).sum()
}

fn story(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    let story: Value = serde_json::from_str(&text).unwrap();
    let mut peer = Peer::from_start();
    let cases = story["cases"].as_array().unwrap();
    for case in cases {
        if let Some(size) = case["header_table_size"].as_u64() {
            peer.decoder.set_max_size_setting(u32::try_from(size).unwrap());
        }
        let (fields, stats) = peer.decode(&hex(case["wire"].as_str().unwrap()));
        let fields: Vec<String> = fields.iter().map(super::line).collect();
        let expected = headers(case);
        assert_eq!(fields, expected, "{} case {}", path.display(), case["seqno"]);
        // "name: value" is as long as name and value, and 2.
        let list_bytes: usize = expected.iter().map(|line| line.len() - 2 + 32).sum();
        assert_eq!(stats.list_bytes, list_bytes as u64);
        assert_eq!((stats.unknown_fields, stats.missing_size_update), (0, false));
    }
    cases.len()
}

fn headers(case: &Value) -> Vec<String> {
    let pairs = case["headers"].as_array().unwrap().iter().flat_map(|field| field.as_object().unwrap());
    pairs.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap())).collect()
}

#[test]
fn recorded_stories_decode_to_their_headers() {
    let folder = folder();
    let encoders = ["go-hpack", "haskell-http2-linear-huffman", "nghttp2", "nghttp2-change-table-size", "python-hpack"];
    for encoder in encoders {
        let blocks = stories(&folder.join(encoder));
        assert!(blocks >= 15, "{encoder}: only {blocks} header blocks");
    }
}
