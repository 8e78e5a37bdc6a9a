//! pcapng time stamps: ticks of an interface's clock to nanoseconds since the epoch.

use crate::limits;

const NANOSECONDS: u128 = 1_000_000_000;

/// An interface's clock (`if_tsresol` and `if_tsoffset`, draft-ietf-opsawg-pcapng section 4.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    scale: Scale,
    offset_seconds: i64,
}

#[derive(Debug, Clone, Copy)]
enum Scale {
    /// A tick is so many nanoseconds.
    Coarse(u64),
    /// So many ticks are a nanosecond.
    Fine(u64),
    /// 2^n ticks are a second.
    Binary(u32),
    /// A second has more ticks than a time stamp can count: all times are within its first second.
    Unusable,
}

/// The time of `ticks`, and whether it fits; if not it is the nearest that does.
pub(super) type Time = (i64, bool);

impl Clock {
    /// The resolution of an interface that does not say it: microseconds.
    pub const DEFAULT_RESOLUTION: u8 = 6;

    /// From the values of `if_tsresol` (high bit: power of two, else power of ten) and `if_tsoffset` (seconds).
    pub fn new(resolution: u8, offset_seconds: i64) -> Clock {
        let exponent = u32::from(resolution & 0x7f);
        let scale = if resolution & 0x80 != 0 {
            if exponent < 64 { Scale::Binary(exponent) } else { Scale::Unusable }
        } else if exponent <= 9 {
            Scale::Coarse(10u64.pow(9 - exponent))
        } else if exponent <= 19 {
            Scale::Fine(10u64.pow(exponent - 9))
        } else {
            Scale::Unusable
        };
        Clock { scale, offset_seconds }
    }

    /// None if a second has more ticks than a time stamp can count.
    pub fn ticks_per_second(self) -> Option<u64> {
        match self.scale {
            Scale::Coarse(nanoseconds) => Some(1_000_000_000 / nanoseconds.max(1)),
            Scale::Fine(ticks) => ticks.checked_mul(1_000_000_000),
            Scale::Binary(exponent) => 1u64.checked_shl(exponent),
            Scale::Unusable => None,
        }
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub fn time(self, ticks: u64) -> Time {
        if let Scale::Coarse(nanoseconds) = self.scale
            && self.offset_seconds == 0
            && let Some(time) = ticks.checked_mul(nanoseconds)
            && time <= limits::LATEST_TIME.cast_unsigned()
        {
            return (time.cast_signed(), true);
        }
        self.time_in_full(ticks)
    }

    fn time_in_full(self, ticks: u64) -> Time {
        // 2^64 ticks times 10^9 nanoseconds fit 128 bits.
        let wide = u128::from(ticks);
        let nanoseconds = match self.scale {
            Scale::Coarse(length) => wide * u128::from(length),
            Scale::Fine(count) => wide / u128::from(count.max(1)),
            Scale::Binary(exponent) => (wide * NANOSECONDS) >> exponent,
            Scale::Unusable => 0,
        };
        let offset = i128::from(self.offset_seconds) * NANOSECONDS.cast_signed();
        let time = nanoseconds.cast_signed() + offset;
        match i64::try_from(time) {
            Ok(time @ 0..=limits::LATEST_TIME) => (time, true),
            _ if time < 0 => (0, false),
            _ => (limits::LATEST_TIME, false),
        }
    }
}
