use foldhash::{HashMap, HashMapExt};
use proptest::prelude::*;

use super::format::Format;
use super::page::{Records, used};
use super::path::{Part, Parts, Step, Surroundings, Walk};
use super::record::{Record, Task};
use super::redact::Redactor;
use super::threads::Threads;
use crate::limits;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";
const LOAD: i32 = 10;
const OTHER: i32 = 99;

/// The description of an event with these fields, one behind the other.
fn describe(name: &str, id: u16, fields: &[(&str, usize)]) -> String {
    let mut text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n");
    let mut offset = 8;
    for (field, size) in fields {
        text += &format!("\tfield:{field};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
        offset += size;
    }
    text
}

fn formats() -> Vec<String> {
    vec![
        describe(
            "sched_switch",
            1,
            &[("char prev_comm[16]", 16), ("pid_t prev_pid", 4), ("pid_t next_pid", 4), ("long prev_state", 8)],
        ),
        describe("sched_waking", 2, &[("char comm[16]", 16), ("pid_t pid", 4)]),
        describe("sock_send_length", 3, &[("void * sk", 8), ("int ret", 4)]),
        describe(
            "inet_sock_set_state",
            4,
            &[
                ("const void * skaddr", 8),
                ("int newstate", 4),
                ("__u16 sport", 2),
                ("__u16 dport", 2),
                ("__u16 family", 2),
                ("__u8 saddr[4]", 4),
                ("__u8 daddr[4]", 4),
                ("__u8 saddr_v6[16]", 16),
                ("__u8 daddr_v6[16]", 16),
            ],
        ),
        describe("sys_enter_futex", 5, &[("u32 * uaddr", 8), ("int op", 8)]),
        describe("task_newtask", 6, &[("pid_t pid", 4), ("char comm[16]", 16), ("u64 clone_flags", 8)]),
    ]
}

/// A page with these events at these times, nanoseconds.
fn page(events: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut now = events.first().map_or(0, |(time, _)| *time);
    let start = now;
    for (time, event) in events {
        let mut padded = event.clone();
        padded.resize(event.len().next_multiple_of(4), 0);
        data.extend(((padded.len() / 4) as u32 | (((time - now) as u32) << 5)).to_le_bytes());
        data.extend(padded);
        now = *time;
    }
    let mut page = start.to_le_bytes().to_vec();
    page.extend((data.len() as u64).to_le_bytes());
    page.extend(data);
    page
}

fn event(id: u16, flags: u8, by: i32, fields: &[&[u8]]) -> Vec<u8> {
    let mut event = id.to_le_bytes().to_vec();
    event.extend([flags, 0]);
    event.extend(by.to_le_bytes());
    fields.iter().for_each(|field| event.extend_from_slice(field));
    event
}

fn switch(from: i32, state: u64, to: i32) -> Vec<u8> {
    event(1, 0, from, &[b"secret\0\0\0\0\0\0\0\0\0\0", &from.to_le_bytes(), &to.to_le_bytes(), &state.to_le_bytes()])
}

fn waking(flags: u8, by: i32, woken: i32) -> Vec<u8> {
    event(2, flags, by, &[b"secret\0\0\0\0\0\0\0\0\0\0", &woken.to_le_bytes()])
}

fn send(by: i32, bytes: i32) -> Vec<u8> {
    event(3, 0, by, &[&0xffff_8880_1234_5678_u64.to_le_bytes(), &bytes.to_le_bytes()])
}

fn establish() -> Vec<u8> {
    let (ports, ends) = ([40_000_u16.to_le_bytes(), 50_051_u16.to_le_bytes()].concat(), [10, 0, 0, 1, 10, 0, 0, 2]);
    let socket = 0xffff_8880_1234_5678_u64.to_le_bytes();
    event(4, 0, 0, &[&socket, &1_u32.to_le_bytes(), &ports, &2_u16.to_le_bytes(), &ends, &[0; 32]])
}

fn futex(by: i32, word: u64) -> Vec<u8> {
    event(5, 0, by, &[&word.to_le_bytes(), &128_u64.to_le_bytes()])
}

/// Threads 10 to 15 of process 10, and what one processor's events say of them.
fn read(events: &[(u64, Vec<u8>)]) -> Record {
    let task = |thread| (thread, Task { process: LOAD, root: LOAD, name: "load".to_owned() });
    let mut record = Record::new(&formats(), (LOAD..LOAD + 6).map(task).collect());
    let page = page(events);
    let mut block = (page.len() as u32).to_le_bytes().to_vec();
    block.extend(page);
    assert!(record.read_pages(0, &block));
    record.finish();
    record
}

fn divide(record: &Record, thread: i32, start: i64, end: i64, throttled: Vec<(i64, i64)>) -> Parts {
    let threads = Threads::new(record);
    let surroundings = Surroundings { arrivals: Vec::new(), throttled };
    let walk = Walk { threads: &threads, record, surroundings: &surroundings };
    let (mut parts, mut steps) = (Parts::default(), Vec::<Step>::new());
    walk.follow(thread, start, end, &mut parts);
    walk.follow(thread, start, end, &mut steps);
    assert_eq!(parts.iter().sum::<i64>(), end - start, "the parts add up");
    steps.sort_unstable_by_key(|step| step.start);
    assert!(steps.windows(2).all(|pair| pair[0].end == pair[1].start), "the steps follow each other: {steps:?}");
    let ends = steps.first().zip(steps.last()).map(|(first, last)| (first.start, last.end));
    assert!(ends == Some((start, end)) || start == end);
    let of = |part: usize| steps.iter().filter(|s| s.part as usize == part).map(|s| s.end - s.start).sum::<i64>();
    assert!(parts.iter().enumerate().all(|(part, ns)| of(part) == *ns));
    parts
}

fn ns(parts: &Parts, part: Part) -> i64 {
    parts[part as usize]
}

#[test]
fn a_format_has_the_places_of_its_fields() {
    let text = "name: inet_sock_set_state\nID: 2287\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n
\tfield:const void * skaddr;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__u8 saddr[4];\toffset:32;\tsize:4;\tsigned:0;\n
\tfield:__data_loc char[] comm;\toffset:40;\tsize:4;\tsigned:0;\n\nprint fmt: \"field: %d\", REC->x\n";
    let format = Format::parse(text).unwrap();
    assert_eq!((format.name.as_str(), format.id), ("inet_sock_set_state", 2287));
    let places: Vec<_> =
        format.fields.iter().map(|f| (f.name.as_str(), f.offset, f.size, f.is_pointer, f.is_located)).collect();
    assert_eq!(
        places[1..],
        [("skaddr", 8, 8, true, false), ("saddr", 32, 4, false, false), ("comm", 40, 4, false, true)]
    );
    for broken in
        ["", "name: x\nID: 1\n", "name: x\nID: y\n", "name: x\nID: 1\n\tfield:int a;\toffset:99999999;\tsize:4;"]
    {
        assert_eq!(Format::parse(broken), None, "{broken}");
    }
}

#[test]
fn long_pauses_and_padding_of_a_page_are_read() {
    let mut page = page(&[(1_000, vec![7; 8]), (1_500, vec![8; 4])]);
    let long = (30_u32 | 5 << 5).to_le_bytes(); // 2 << 27 and 5 ns more
    page.extend(long.into_iter().chain(2_u32.to_le_bytes()));
    page.extend((1_u32 | 3 << 5).to_le_bytes().into_iter().chain([9; 4]));
    page.extend(29_u32.to_le_bytes()); // the rest is empty
    page.extend([1; 64]);
    let data = page.len() as u64 - 16;
    page[8..16].copy_from_slice(&data.to_le_bytes());
    let found: Vec<_> = Records::new(&page).map(|(time, place)| (time, page[place].to_vec())).collect();
    assert_eq!(found, [(1_000, vec![7; 8]), (1_500, vec![8; 4]), (1_500 + (2 << 27) + 5 + 3, vec![9; 4])]);
}

#[test]
fn redacted_pages_have_no_names_and_no_addresses() {
    let events = [
        (5, switch(OTHER, 1, LOAD)),
        (9, waking(0, OTHER, LOAD)),
        (12, send(LOAD, 77)),
        (13, event(200, 0, 3, &[b"unknown!"])),
    ];
    let before = page(&events);
    let mut redactor = Redactor::new(formats().iter().filter_map(|text| Format::parse(text)).collect(), [3; 32]);
    let mut after = before.clone();
    let used = redactor.redact(&mut after).to_vec();
    for secret in [&b"secret"[..], b"unknown", &0xffff_8880_1234_5678_u64.to_le_bytes()] {
        assert!(before.windows(secret.len()).any(|bytes| bytes == secret));
        assert!(!used.windows(secret.len()).any(|bytes| bytes == secret));
    }
    let mut again = before.clone();
    assert_eq!(redactor.redact(&mut again), used, "the same address becomes the same number");
    assert_eq!(used.len(), before.len());
}

#[test]
fn the_way_goes_back_over_wake_ups_to_the_interrupt() {
    // a packet wakes 11, which works 40 ns and wakes 10; other processes hold the processor for 20 ns
    let record = read(&[
        (0, switch(LOAD, 1, 11)),
        (10, switch(11, 1, 0)),
        (100, waking(0x10, 0, 11)),
        (105, switch(0, 0, 11)),
        (145, waking(0, 11, LOAD)),
        (150, switch(11, 1, OTHER)),
        (170, switch(OTHER, 0, LOAD)),
        (200, establish()),
        (210, send(LOAD, 100)),
    ]);
    let parts = divide(&record, LOAD, 100, 210, vec![]);
    assert_eq!(ns(&parts, Part::Running), 40 + 40);
    assert_eq!(ns(&parts, Part::Runnable), 5, "11 ran on");
    assert_eq!(ns(&parts, Part::OtherProcesses), 20);
    assert_eq!(ns(&parts, Part::WakeUp), 5);
    let waited = divide(&record, LOAD, 50, 210, vec![]);
    assert_eq!(ns(&waited, Part::Io), 50, "no packet of the capture came");
    assert_eq!(record.sockets.len(), 1);
    let sent = Threads::new(&record).sender(0, 99).unwrap();
    assert_eq!((sent.by, sent.time, sent.end), (LOAD, 210, 100));
    assert_eq!(Threads::new(&record).sender(0, 100), None);
}

#[test]
fn a_throttled_thread_is_ready_while_its_processor_is_idle() {
    let record = read(&[(0, switch(0, 0, LOAD)), (50, switch(LOAD, 0, 0)), (950, switch(0, 0, LOAD))]);
    let parts = divide(&record, LOAD, 10, 1_000, vec![(40, 900)]);
    assert_eq!((ns(&parts, Part::Running), ns(&parts, Part::Throttled), ns(&parts, Part::WakeUp)), (90, 850, 50));
    assert_eq!(ns(&divide(&record, LOAD, 10, 1_000, vec![]), Part::Throttled), 0);
}

/// Thread 10 waits for a word with others, and 11 wakes it, which waited for it, too, or not.
fn wait_for_word(others: i32, waker_waited: bool) -> Parts {
    let mut events = vec![];
    let mut block = |time, thread| {
        events.extend([
            (time, switch(0, 0, thread)),
            (time + 1, futex(thread, 0xf00)),
            (time + 2, switch(thread, 1, 0)),
        ]);
    };
    if waker_waited {
        block(0, 11);
    }
    for other in 0..others {
        block(100 + 10 * other as u64, 12 + other);
    }
    block(200, LOAD);
    if waker_waited {
        events.push((300, waking(0, OTHER, 11)));
    }
    events.extend([(310, switch(0, 0, 11)), (900, waking(0, 11, LOAD)), (910, switch(11, 1, LOAD))]);
    divide(&read(&events), LOAD, 250, 1_000, vec![])
}

#[test]
fn a_lock_has_several_waiters_and_is_left_by_one_who_waited() {
    assert_eq!(ns(&wait_for_word(2, true), Part::Lock), 650);
    assert_eq!(ns(&wait_for_word(1, true), Part::Lock), 0, "two waiters are no contention");
    assert_eq!(ns(&wait_for_word(2, false), Part::Lock), 0, "idle workers wait for work, not for each other");
}

#[test]
fn a_thread_woken_while_it_stops_is_ready() {
    let record = read(&[
        (0, switch(0, 0, 11)),
        (10, switch(0, 0, LOAD)),
        (90, waking(0, 11, LOAD)),
        (100, switch(LOAD, 1, 11)),
        (150, switch(11, 0, LOAD)),
    ]);
    let parts = divide(&record, LOAD, 20, 200, vec![]);
    assert_eq!((ns(&parts, Part::Running), ns(&parts, Part::Runnable), ns(&parts, Part::Unknown)), (50 + 80, 50, 0));
}

#[test]
fn threads_belong_to_processes() {
    let clone = |by: i32, pid: i32, flags: u64| {
        event(6, 0, by, &[&pid.to_le_bytes(), b"new\0............", &flags.to_le_bytes()])
    };
    let record = read(&[(1, clone(LOAD, 50, 0)), (2, clone(50, 51, 0x10000)), (3, clone(51, 52, 0x10000))]);
    assert_eq!(record.tasks.get(&52), Some(&Task { process: 50, root: LOAD, name: "new".to_owned() }));
    assert_eq!(record.tasks.get(&50).map(|task| task.process), Some(50));
}

proptest! {
    #[test]
    fn damaged_pages_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..600), length in 0..700_u32, commit in 0..600_u64) {
        if bytes.len() > 20 {
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[12..20].copy_from_slice(&commit.to_le_bytes());
        }
        let mut record = Record::new(&formats(), HashMap::new());
        record.read_pages(0, &bytes);
        record.read_block(0, &bytes);
        record.finish();
        let mut redactor = Redactor::new(formats().iter().filter_map(|text| Format::parse(text)).collect(), [0; 32]);
        if let Some(page) = bytes.get_mut(4..) {
            prop_assert!(used(page).is_none_or(|used| used <= page.len()));
            redactor.redact(page);
        }
    }

    #[test]
    fn parts_of_any_events_add_up(
        steps in prop::collection::vec((0..5_u8, 0..2_000_u64, 8..17_i32, 8..17_i32, 0..3_u64), 0..200),
        start in 0..20_000_i64,
        length in 0..20_000_i64,
        throttled in prop::collection::vec((0..30_000_i64, 0..3_000_i64), 0..5),
    ) {
        let mut now = 0;
        let events: Vec<_> = steps.into_iter().map(|(kind, pause, one, two, extra)| {
            now += pause;
            (now, match kind {
                0 | 1 => switch(one, extra, two),
                2 => waking(8 * extra as u8, one, two),
                3 => futex(one, extra),
                _ => send(one, 5),
            })
        }).collect();
        let mut at = 0;
        let throttled: Vec<_> = throttled.into_iter().map(|(pause, lasts)| { at += pause + lasts; (at - lasts, at) }).collect();
        let record = read(&events);
        for thread in 8..17 {
            let parts = divide(&record, thread, start, start + length, Vec::clone(&throttled));
            prop_assert!(parts.iter().all(|part| *part >= 0));
        }
    }
}

#[test]
fn a_thread_that_waits_for_a_timer_is_not_throttled() {
    let record = read(&[(0, switch(LOAD, 1, 0)), (880, waking(0x08, 0, LOAD)), (900, switch(0, 0, LOAD))]);
    let parts = divide(&record, LOAD, 100, 1_000, vec![(40, 870)]);
    assert_eq!((ns(&parts, Part::Timer), ns(&parts, Part::Throttled), ns(&parts, Part::Running)), (780, 0, 100));
}

#[test]
fn fields_of_a_wrong_size_are_not_read() {
    let sizes = |name: &str, size: usize| {
        let right =
            [("sport", 2), ("dport", 2), ("family", 2), ("saddr", 4), ("daddr", 4), ("saddr_v6", 16), ("daddr_v6", 16)];
        let mut fields = vec![("const void * skaddr", 8), ("int newstate", 4)];
        let declared = right.map(|(field, usual)| (format!("__u8 {field}"), if field == name { size } else { usual }));
        fields.extend(declared.iter().map(|(field, size)| (field.as_str(), *size)));
        let mut record = Record::new(&[describe("inet_sock_set_state", 4, &fields)], HashMap::new());
        let mut block = page(&[(200, event(4, 0, 0, &[&[0; 8], &1_u32.to_le_bytes(), &[0; 90]]))]);
        block.splice(..0, (block.len() as u32).to_le_bytes());
        assert!(record.read_pages(0, &block));
        record.finish();
        record.sockets.len()
    };
    assert_eq!(sizes("", 0), 1);
    for (name, size) in [("saddr", 5), ("daddr", 0), ("saddr_v6", 15), ("daddr_v6", 4_096), ("sport", 4), ("dport", 0)]
    {
        assert_eq!(sizes(name, size), 0, "{name} of {size} bytes");
    }
}

#[test]
fn times_beyond_centuries_are_damage() {
    for (time, is_read) in [(limits::TRACE_TIME - 1, true), (limits::TRACE_TIME, false), (u64::MAX, false)] {
        let mut block = page(&[(time, send(LOAD, 1))]);
        block.splice(..0, (block.len() as u32).to_le_bytes());
        assert_eq!(Record::new(&formats(), HashMap::new()).read_pages(0, &block), is_read, "{time}");
    }
}

#[test]
fn reading_ends_at_the_first_damaged_block() {
    let mut block = page(&[(5, switch(LOAD, 1, 11))]);
    block.splice(..0, (block.len() as u32).to_le_bytes());
    let whole = ruzstd::encoding::compress_to_vec(block.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    let mut record = Record::new(&formats(), HashMap::new());
    record.read_blocks(&[(0, whole.clone()), (0, b"damaged".to_vec()), (0, whole)]);
    assert_eq!((record.is_damaged, record.is_cut, record.events.len()), (true, false, 1));
}

#[test]
fn a_record_has_room_for_some_bytes() {
    let mut pages = vec![0; limits::TRACE_BLOCK];
    pages[..4].copy_from_slice(&(limits::TRACE_BLOCK as u32 - 4).to_le_bytes());
    let block = ruzstd::encoding::compress_to_vec(pages.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    let blocks = vec![(0, block); limits::TRACE_BYTES / limits::TRACE_BLOCK + 1];
    for (count, is_cut) in [(blocks.len() - 1, false), (blocks.len(), true)] {
        let mut record = Record::new(&formats(), HashMap::new());
        record.read_blocks(&blocks[..count]);
        assert_eq!((record.is_cut, record.is_damaged), (is_cut, false));
    }
}

#[test]
fn a_record_has_room_for_some_sockets() {
    let events: Vec<_> = (0..limits::TRACE_SOCKETS as u64 + 5).map(|time| (time, establish())).collect();
    assert_eq!(read(&events).sockets.len(), limits::TRACE_SOCKETS);
}

#[test]
fn a_format_that_misses_fields_is_not_read() {
    let record =
        Record::new(&["name: sched_switch\nID: 1\n\tfield:int x;\toffset:8;\tsize:4;".to_owned()], HashMap::new());
    assert!(record.events.is_empty());
}
