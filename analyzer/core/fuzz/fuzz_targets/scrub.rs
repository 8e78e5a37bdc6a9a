#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| grpcdiag_fuzz::scrub::run(data));
