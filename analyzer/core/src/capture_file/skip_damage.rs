//! Finds the next record after a damaged one.

use crate::limits::CAPTURE_RESYNC_DISTANCE;

use super::info::CaptureInfo;
use super::input::Input;

/// Takes bytes, at least one, until `is_record` holds for what follows; false if `distance` or the stream ends first.
pub(super) fn search(input: &mut Input, distance: u64, mut is_record: impl FnMut(&mut Input) -> bool) -> bool {
    let limit = input.offset().saturating_add(distance);
    while input.offset() < limit && input.ensure(1) {
        input.take(1);
        if is_record(input) {
            return true;
        }
    }
    false
}

/// Skips from a record that cannot be read, because of `why`, to the next that can, and records that; false if there is none.
pub(super) fn skip_damage(
    input: &mut Input,
    info: &mut CaptureInfo,
    file: usize,
    why: &str,
    is_record: impl FnMut(&mut Input) -> bool,
) -> bool {
    let begin = input.offset();
    let found = search(input, CAPTURE_RESYNC_DISTANCE, is_record);
    let end = input.offset();
    let failure = input.failure().filter(|_| !found);
    info.add_damage(file, begin, || {
        let length = end.saturating_sub(begin);
        if found {
            format!("{why}; skipped {length} bytes to offset {end}, where records continue")
        } else if let Some(failure) = failure {
            format!("{why}; no record follows within {length} bytes, where {failure}")
        } else {
            format!("{why}; no record follows within {length} bytes, so the rest of the file is not read")
        }
    });
    found
}

/// For a stream that ends inside a record of `needed` bytes, or by a failure; nothing is wrong if it ends between records.
/// `is_record` is given if the record's length might be false: then what follows may be whole, and the result is true.
pub(super) fn end_of_stream(
    input: &mut Input,
    info: &mut CaptureInfo,
    file: usize,
    needed: usize,
    is_record: Option<impl FnMut(&mut Input) -> bool>,
) -> bool {
    let (begin, have) = (input.offset(), input.waiting().len());
    if let Some(failure) = input.failure() {
        info.add_damage(file, begin, || {
            if have == 0 {
                return format!("{failure}; the rest of the file is not read");
            }
            format!("{failure}; {have} bytes of an incomplete record before that and the rest of the file are not read")
        });
        return false;
    }
    if have == 0 {
        return false;
    }
    let found = is_record.is_some_and(|is_record| search(input, CAPTURE_RESYNC_DISTANCE, is_record));
    let end = input.offset();
    info.add_damage(file, begin, || {
        if found {
            let length = end.saturating_sub(begin);
            return format!(
                "a record of {needed} bytes would end behind the file; \
                 skipped {length} bytes to offset {end}, where records continue"
            );
        }
        let missing = needed.saturating_sub(have);
        format!("the file ends inside a record: {missing} of {needed} bytes are missing")
    });
    found
}
