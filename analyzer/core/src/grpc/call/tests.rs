use super::*;

/// The longest silence of a call that begins at 10 and goes on at 90, nanoseconds. Up to 50 it is charged to another
/// cause, and bytes are missing up to `gap_time`.
fn silence(touches_gap: bool, gap_time: i64) -> i64 {
    let mut call = Call::default();
    call.begin(1, Kind::Grpc, At::new(1, 10), [0; 2]);
    call.touches_gap = touches_gap;
    call.charge(50, Cause::StreamWindow);
    let gap = Gap { time: gap_time, count: u32::from(gap_time >= 0) };
    call.charge_activity(1, false, &At::new(2, 90), &Transport::default(), gap);
    call.silence_ns
}

#[test]
fn a_silence_lasts_whatever_causes_its_time_is_charged_to() {
    assert_eq!(silence(false, -1), 80);
    assert_eq!(silence(false, 30), 60, "bytes of the call may have been in the gap");
    assert_eq!(silence(false, 200), 0);
    assert_eq!(silence(true, -1), 40, "bytes of it were");
}
