//! Selects the packets and frames that get rows where few are wanted, and keeps what their rows do not say.

use super::tables::{InFlight, InFlightRow, PacketRow};

/// Packets of a connection whose rows are wanted, and those of frames that overlap them.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first and the last packet.
    pub packets: [u32; 2],
    /// The first and the last time, nanoseconds since the epoch.
    pub times: [i64; 2],
    /// The only stream whose frames are wanted; `None` for all.
    pub stream: Option<u32>,
}

/// Ranges by connection, in the order of their first packets. Those of a connection overlap only where none ends at a packet.
#[derive(Clone, Debug)]
pub struct RowSelection {
    ranges: Vec<Vec<Range>>,
    /// Whether the packets of each connection are listed.
    lists_packets: bool,
    /// Frames that get rows, the first ones.
    pub most_frames: usize,
}

impl RowSelection {
    /// No range.
    pub fn new(lists_packets: bool, most_frames: usize) -> Self {
        Self { ranges: Vec::new(), lists_packets, most_frames }
    }

    /// Adds a range; later ones of its connection begin at the same packet or behind it.
    pub fn add(&mut self, connection: u32, range: Range) {
        let row = connection as usize;
        if self.ranges.len() <= row {
            self.ranges.resize_with(row + 1, Vec::new);
        }
        self.ranges[row].push(range);
    }

    /// Whether a connection need not be read: rows of others alone are wanted.
    #[inline]
    pub fn leaves_out(&self, connection: u32) -> bool {
        !self.lists_packets && self.of(connection).is_empty()
    }

    #[inline]
    fn of(&self, connection: u32) -> &[Range] {
        self.ranges.get(connection as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a range holds some of these packets and times, and this stream.
    #[inline]
    pub fn holds(&self, connection: u32, packets: [u32; 2], times: [i64; 2], stream: Option<u32>) -> bool {
        let ranges = self.of(connection);
        let begun = ranges.partition_point(|range| range.packets[0] <= packets[1]);
        let open = ranges.iter().take(begun).rev().take_while(|range| range.packets[1] >= packets[0]);
        let is_of = |range: &Range| stream.is_none() || range.stream.is_none() || range.stream == stream;
        open.into_iter().any(|range| range.times[0] <= times[1] && range.times[1] >= times[0] && is_of(range))
    }
}

/// What one direction of a connection has sent, and what of it was acknowledged; -1 before the first packet.
type Sent = [i64; 2];

/// Offsets are no larger than this.
const MOST_SENT: i64 = (1 << 40) - 1;

/// What is kept beside the selected rows.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// By connection.
    sent: Vec<[Sent; 2]>,
    /// One row per packet that has one.
    pub in_flight: InFlight,
    /// The packet that was read when each frame's row was made.
    pub frames_read_at: Vec<u32>,
    /// The packets of each connection, if they are listed.
    pub packets: Vec<Vec<u32>>,
}

impl Selected {
    /// Takes a packet in; says whether its row is wanted.
    pub fn take(&mut self, selection: &RowSelection, row: &PacketRow) -> bool {
        let connection = row.connection as usize;
        if selection.lists_packets {
            if self.packets.len() <= connection {
                self.packets.resize_with(connection + 1, Vec::new);
            }
            self.packets[connection].push(row.packet);
        }
        if selection.of(row.connection).is_empty() {
            return false;
        }
        if self.sent.len() <= connection {
            self.sent.resize(connection + 1, [[-1; 2]; 2]);
        }
        let sent = &mut self.sent[connection];
        note_sent(sent, row);
        let is_wanted = selection.holds(row.connection, [row.packet; 2], [row.time_ns; 2], None);
        if is_wanted {
            let [client_in_flight, server_in_flight] =
                sent.map(|[sent, acknowledged]| if sent < 0 { 0 } else { (sent - acknowledged.max(0)).max(0) });
            self.in_flight.push(InFlightRow { client_in_flight, server_in_flight });
        }
        is_wanted
    }

    /// Corrects the directions of a connection's packets; `rows` are those that have been corrected.
    pub fn turn(&mut self, connection: u32, rows: &[usize]) {
        if let Some(sent) = self.sent.get_mut(connection as usize) {
            sent.swap(0, 1);
        }
        let InFlight { client_in_flight, server_in_flight } = &mut self.in_flight;
        for &row in rows {
            if let (Some(client), Some(server)) = (client_in_flight.get_mut(row), server_in_flight.get_mut(row)) {
                std::mem::swap(client, server);
            }
        }
    }

    /// Takes in what another thread kept.
    pub fn append(&mut self, other: &mut Self) {
        self.in_flight.append(&mut other.in_flight);
        self.frames_read_at.append(&mut other.frames_read_at);
        self.packets.resize_with(self.packets.len().max(other.packets.len()), Vec::new);
        for (mine, theirs) in self.packets.iter_mut().zip(&mut other.packets) {
            mine.append(theirs);
        }
    }
}

fn note_sent(sent: &mut [Sent; 2], row: &PacketRow) {
    let side = usize::from(row.direction & 1);
    let offset = |bytes: u64| i64::try_from(bytes).unwrap_or(MOST_SENT).min(MOST_SENT);
    // what was sent before the first packet in the capture is not in flight
    if sent[side][0] < 0 {
        sent[side][1] = sent[side][1].max(offset(row.seq));
    }
    sent[side][0] = sent[side][0].max(offset(row.seq.saturating_add(u64::from(row.payload_bytes))));
    if row.flags & 16 != 0 {
        sent[1 - side][1] = sent[1 - side][1].max(offset(row.ack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(packets: [u32; 2], times: [i64; 2]) -> Range {
        Range { packets, times, stream: None }
    }

    #[test]
    fn rows_that_overlap_a_range_are_wanted() {
        let mut selection = RowSelection::new(false, 0);
        for packets in [[3, 5], [9, 9], [20, 30]] {
            selection.add(2, range(packets, [i64::MIN, i64::MAX]));
        }
        let held = |first, last| selection.holds(2, [first, last], [0, 0], None);
        let found: Vec<u32> = (0..35).filter(|&packet| held(packet, packet)).collect();
        assert_eq!(found, [3, 4, 5, 9].into_iter().chain(20..=30).collect::<Vec<_>>());
        assert!(held(6, 9) && held(1, 40) && !held(6, 8) && !held(31, 50));
        assert!(!selection.holds(1, [3, 3], [0, 0], None) && !selection.holds(3, [3, 3], [0, 0], None));
    }

    #[test]
    fn ranges_of_times_may_overlap() {
        let mut selection = RowSelection::new(false, 0);
        for times in [[50, 60], [10, 20], [15, 40]] {
            selection.add(0, range([0, u32::MAX], times));
        }
        let found: Vec<i64> =
            (0..70).step_by(5).filter(|&time| selection.holds(0, [7, 7], [time, time], Some(1))).collect();
        assert_eq!(found, [10, 15, 20, 25, 30, 35, 40, 50, 55, 60]);
    }

    #[test]
    fn bytes_in_flight_are_those_sent_and_not_acknowledged() {
        let mut selection = RowSelection::new(false, 0);
        selection.add(0, range([2, 9], [i64::MIN, i64::MAX]));
        let mut selected = Selected::default();
        let packets = [(0, 100, 50, 0), (1, 0, 10, 150), (0, 150, 30, 4), (0, 180, 5, 10), (1, 10, 0, 185)];
        for (packet, (direction, seq, payload_bytes, ack)) in (1..).zip(packets) {
            let row = PacketRow { packet, direction, seq, payload_bytes, ack, flags: 16, ..PacketRow::default() };
            assert_eq!(selected.take(&selection, &row), packet > 1);
        }
        assert_eq!(selected.in_flight.client_in_flight, [0, 30, 35, 0]);
        assert_eq!(selected.in_flight.server_in_flight, [10, 6, 0, 0]);
        selected.turn(0, &[1]);
        assert_eq!(selected.in_flight.client_in_flight, [0, 6, 35, 0]);
    }
}
