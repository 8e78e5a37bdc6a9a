//! The fuzz targets' bodies on a stable toolchain: their seeds, what once failed, and a fixed number of mutations, the
//! same ones each time. `GRPCDIAG_FUZZ_RUNS` sets how many per target; cargo-fuzz (`make fuzz`) looks deeper.

#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use std::path::Path;

use fuzz::{TARGETS, Target};
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What all targets together may hold: as much as cargo-fuzz allows one (`-rss_limit_mb`).
const MOST_MEGABYTES: f32 = 256.0;

fn runs() -> u32 {
    let asked = std::env::var("GRPCDIAG_FUZZ_RUNS").ok();
    asked.map_or(2_000, |runs| runs.parse().expect("GRPCDIAG_FUZZ_RUNS is a number"))
}

/// The strings of libFuzzer's dictionary.
fn words() -> Vec<Vec<u8>> {
    let lines = include_str!("../fuzz/dictionary.txt").lines();
    let quoted = lines.filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(unescape).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
        bytes.extend(rest.bytes());
    }
    bytes
}

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Overwrite(Index, Vec<u8>),
    Delete(Index, usize),
    Repeat(Index, usize, usize),
    Cut(Index),
    /// What another seed has there.
    Splice(Index, Index),
}

fn change(words: Vec<Vec<u8>>) -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let extreme = prop_oneof![Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    let word = || prop_oneof![3 => select(words.clone()), 1 => prop::collection::vec(any::<u8>(), 1..8)];
    prop_oneof![
        4 => (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        4 => (at(), extreme).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (at(), word()).prop_map(|(at, word)| Change::Insert(at, word)),
        2 => (at(), word()).prop_map(|(at, word)| Change::Overwrite(at, word)),
        2 => (at(), 1..40_usize).prop_map(|(at, length)| Change::Delete(at, length)),
        1 => (at(), 1..60_usize, 1..20_usize).prop_map(|(at, length, times)| Change::Repeat(at, length, times)),
        1 => at().prop_map(Change::Cut),
        1 => (at(), at()).prop_map(|(seed, at)| Change::Splice(seed, at)),
    ]
}

fn apply(input: &mut Vec<u8>, change: &Change, seeds: &[Vec<u8>]) {
    let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
    let put = |input: &mut Vec<u8>, at: usize, length: usize, bytes: &[u8]| {
        let end = input.len().min(at + length);
        drop(input.splice(at..end, bytes.iter().copied()));
    };
    match change {
        Change::Flip(at, bit) => {
            let at = place(at, input);
            input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
        }
        Change::Set(at, byte) => put(input, place(at, input), 1, &[*byte]),
        Change::Insert(at, word) => put(input, place(at, input), 0, word),
        Change::Overwrite(at, word) => put(input, place(at, input), word.len(), word),
        Change::Delete(at, length) => put(input, place(at, input), *length, &[]),
        Change::Repeat(at, length, times) => {
            let at = place(at, input);
            let piece = input[at..input.len().min(at + length)].repeat(*times);
            put(input, at, 0, &piece);
        }
        Change::Cut(at) => input.truncate(place(at, input)),
        Change::Splice(seed, at) => {
            let other = seed.get(seeds);
            let at = place(at, input);
            input.truncate(at);
            input.extend(other.iter().skip(at));
        }
    }
}

/// Runs a target on its seeds and on mutations of them; a failure is made small before it is told.
fn mutate(target: &Target) {
    let seeds = (target.seeds)();
    assert!(seeds.len() > 20, "{}: {} seeds", target.name, seeds.len());
    seeds.iter().for_each(|seed| (target.run)(seed));
    let config = ProptestConfig { cases: runs(), failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let input = (any::<Index>(), prop::collection::vec(change(words()), 1..6));
    let input = input.prop_map(|(seed, changes)| {
        let mut input = seed.get(&seeds).clone();
        changes.iter().for_each(|change| apply(&mut input, change, &seeds));
        input
    });
    let result = runner.run(&input, |input| {
        (target.run)(&input);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{}: {error}", target.name);
    }
    let megabytes = MEMORY.peak_usage_as_mb();
    assert!(megabytes < MOST_MEGABYTES, "{}: {megabytes} MB", target.name);
}

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of that name")
}

#[test]
fn packets() {
    mutate(target("packets"));
}

#[test]
fn http2() {
    mutate(target("http2"));
}

#[test]
fn tls() {
    mutate(target("tls"));
}

#[test]
fn capture_files() {
    mutate(target("capture_file"));
}

#[test]
fn whole_runs() {
    mutate(target("pipeline"));
}

#[test]
fn scrubbed_captures() {
    mutate(target("scrub"));
}

/// Inputs that once failed, as cargo-fuzz wrote them: fuzz/regressions/<target>/<what was wrong>.
#[test]
fn what_once_failed_does_not_fail_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    let mut known = 0;
    for target in &TARGETS {
        let Ok(entries) = std::fs::read_dir(folder.join(target.name)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
            known += 1;
        }
    }
    assert!(known > 0, "no input in {}", folder.display());
}

/// cargo-fuzz builds what stands in `fuzz_targets/`: the same names as here.
#[test]
fn every_target_can_be_run_by_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    let stems: Vec<_> = files.iter().map(|path| path.file_stem().unwrap().to_string_lossy()).collect();
    assert_eq!(stems, names);
    for (file, name) in files.iter().zip(names) {
        assert!(std::fs::read_to_string(file).unwrap().contains(&format!("grpcdiag_fuzz::{name}::run(data)")));
    }
}
