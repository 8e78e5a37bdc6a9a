//! The frames of http2-frame-test-case: each is read as its vector says, or refused with an error code it allows.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

use crate::http2::frame::header::{DEFAULT_MAX_FRAME_SIZE, FrameError, FrameHeader, FrameType, HEADER_LEN};
use crate::http2::frame::priority::{self, Priority};
use crate::http2::frame::{
    continuation, data, goaway, headers, ping, push_promise, rst_stream, settings, window_update,
};

/// `HTTP2_FRAME_TEST_CASE_DIR`, or the vectors that come with the source.
fn folder() -> PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/conformance/http2-frame-test-case");
    std::env::var_os("HTTP2_FRAME_TEST_CASE_DIR").map_or(shipped, PathBuf::from)
}

/// The vectors by path below the folder.
fn vectors() -> Vec<(String, Value)> {
    let mut vectors = Vec::new();
    let root = folder();
    for folder in std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display())) {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let vector = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
                vectors.push((path.strip_prefix(&root).unwrap().display().to_string(), vector));
            }
        }
    }
    vectors.sort_by(|(a, _), (b, _)| a.cmp(b));
    vectors
}

fn octets(vector: &Value) -> Vec<u8> {
    let wire = vector["wire"].as_str().unwrap();
    (0..wire.len()).step_by(2).map(|at| u8::from_str_radix(&wire[at..at + 2], 16).unwrap()).collect()
}

fn text(octets: &[u8]) -> Value {
    std::str::from_utf8(octets).unwrap().into()
}

/// A frame in the words of the vectors; before any SETTINGS a frame may be no longer than 16,384 octets.
fn read(octets: &[u8]) -> Result<Value, FrameError> {
    let (head, payload) = octets.split_first_chunk::<HEADER_LEN>().unwrap();
    let header = FrameHeader::parse(head);
    header.check()?;
    if header.length() > DEFAULT_MAX_FRAME_SIZE {
        return Err(FrameError::size("frame is longer than SETTINGS_MAX_FRAME_SIZE"));
    }
    let payload = &payload[..header.length() as usize];
    Ok(json!({
        "length": header.length(),
        "type": header.kind().0,
        "flags": header.flags(),
        "stream_identifier": header.stream,
        "frame_payload": read_payload(&header, payload)?,
    }))
}

fn read_payload(header: &FrameHeader, payload: &[u8]) -> Result<Value, FrameError> {
    Ok(match header.kind() {
        FrameType::DATA => {
            let frame = data::parse(header, payload)?;
            padded(json!({"data": text(frame.data)}), frame.padding)
        }
        FrameType::HEADERS => {
            let frame = headers::parse(header, payload)?;
            let block = json!({"header_block_fragment": text(frame.fragment)});
            padded(with_priority(block, frame.priority), frame.padding)
        }
        FrameType::PRIORITY => padded(with_priority(json!({}), Some(priority::parse(header, payload)?)), None),
        FrameType::RST_STREAM => json!({"error_code": rst_stream::parse(header, payload)?}),
        FrameType::SETTINGS => json!({"settings": settings::parse(header, payload)?.collect::<Vec<_>>()}),
        FrameType::PUSH_PROMISE => {
            let frame = push_promise::parse(header, payload)?;
            let block = text(frame.fragment);
            padded(json!({"header_block_fragment": block, "promised_stream_id": frame.promised_stream}), frame.padding)
        }
        FrameType::PING => json!({"opaque_data": text(&ping::parse(header, payload)?)}),
        FrameType::GOAWAY => {
            let frame = goaway::parse(header, payload)?;
            let debug = text(frame.debug_data);
            json!({"error_code": frame.error_code, "last_stream_id": frame.last_stream, "additional_debug_data": debug})
        }
        FrameType::WINDOW_UPDATE => json!({"window_size_increment": window_update::parse(header, payload)?}),
        FrameType::CONTINUATION => json!({"header_block_fragment": text(continuation::parse(header, payload)?)}),
        FrameType(other) => panic!("a vector of type {other}"),
    })
}

fn with_priority(mut payload: Value, priority: Option<Priority>) -> Value {
    payload["stream_dependency"] = priority.map(|fields| fields.dependency).into();
    payload["weight"] = priority.map(|fields| fields.weight).into();
    payload["exclusive"] = priority.map(|fields| fields.exclusive).into();
    payload
}

fn padded(mut payload: Value, padding: Option<&[u8]>) -> Value {
    payload["padding_length"] = padding.map(<[u8]>::len).into();
    payload["padding"] = padding.map_or(Value::Null, text);
    payload
}

#[test]
fn frames_are_read_as_the_vectors_say() {
    let mut kinds = Vec::new();
    for (name, vector) in vectors().iter().filter(|(_, vector)| vector["error"].is_null()) {
        assert_eq!(read(&octets(vector)).as_ref(), Ok(&vector["frame"]), "{name}");
        kinds.push(vector["frame"]["type"].as_u64().unwrap());
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..FrameType::KNOWN as u64).collect::<Vec<_>>(), "every type has a vector");
}

#[test]
fn wrong_frames_are_refused_as_the_vectors_say() {
    let vectors = vectors();
    let wrong: Vec<_> = vectors.iter().filter(|(_, vector)| !vector["error"].is_null()).collect();
    for (name, vector) in &wrong {
        let error = read(&octets(vector)).expect_err(name);
        let allowed = vector["error"].as_array().unwrap();
        assert!(allowed.contains(&json!(error.code as u8)), "{name}: {error:?} is none of {allowed:?}");
    }
    assert!(wrong.len() >= 22, "only {} vectors of wrong frames", wrong.len());
}
