//! Events of a process record: trace pages decoded by the formats that the recorder wrote beside them.

use foldhash::HashMap;
use std::io::Read;

use super::format::{Field, Format, read_number};
use super::page::{HEADER, Records, follows_loss, used};
use crate::limits;

/// A thread, by the kernel's number; 0 is an idle processor.
pub type Thread = i32;

/// Who made a thread ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// A thread.
    Thread(Thread),
    /// The interrupt of a timer or a device.
    Hardware,
    /// What runs after one: packets arrive there, on the loopback device too.
    Deferred,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A processor stopped running one thread and runs another.
    Switch {
        /// The thread that stopped.
        from: Thread,
        /// It waits for something; otherwise it is ready to run.
        blocked: bool,
        /// The thread that runs now.
        to: Thread,
    },
    /// A thread was made ready to run.
    Waking {
        /// Who did it.
        by: Waker,
        /// The thread made ready.
        woken: Thread,
    },
    /// A thread has sent bytes on a socket.
    Send {
        /// The thread.
        by: Thread,
        /// The socket's use, an index into `Record::sockets`.
        socket: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// A thread waits for a word in memory (futex), until it runs again.
    Futex {
        /// The thread.
        by: Thread,
        /// The word, by its address.
        word: u64,
    },
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of the trace's clock.
    pub time: i64,
    /// The processor.
    pub cpu: u16,
    /// What happened.
    pub kind: Kind,
}

/// One use of a socket: a connection from its establishment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// When it was established.
    pub time: i64,
    /// 4 or 16 octets each: its own address and its peer's.
    pub addresses: [Vec<u8>; 2],
    /// Its own port and its peer's.
    pub ports: [u16; 2],
}

/// A thread of the recorded command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its process.
    pub process: Thread,
    /// The process that was recorded from the beginning, from which it stems.
    pub root: Thread,
    /// Its last name.
    pub name: String,
}

/// Where the fields of the events are that are read.
#[derive(Debug)]
enum Known {
    Switch { from: Field, state: Field, to: Field },
    Waking { woken: Field },
    Task { pid: Field, flags: Field, name: Field },
    Rename { name: Field },
    Send { socket: Field, result: Field },
    State(Box<StateFields>),
    Futex { word: Field, op: Field },
}

#[derive(Debug)]
struct StateFields {
    socket: Field,
    to: Field,
    ports: [Field; 2],
    family: Field,
    addresses: [[Field; 2]; 2],
}

/// Reads the blocks of a process record.
#[derive(Debug, Default)]
pub struct Record {
    known: Vec<(u16, Known)>,
    /// Events, ordered by `finish`.
    pub events: Vec<Event>,
    /// Threads of the recorded command and its children.
    pub tasks: HashMap<Thread, Task>,
    /// Sockets whose establishment was recorded.
    pub sockets: Vec<Socket>,
    /// The present use of a socket, by what stands for its address.
    uses: HashMap<u64, u32>,
    pending: Vec<(i64, Pending)>,
    /// Pages before which the kernel lost events.
    pub losses: u64,
    /// A block could not be read to its end.
    pub is_damaged: bool,
    /// There are more events or bytes than are read.
    pub is_cut: bool,
    /// Bytes of pages, decompressed.
    bytes: usize,
    /// Establishments of sockets in `pending`.
    established: usize,
}

/// Events about sockets and tasks, which need all processors' in order.
#[derive(Debug)]
enum Pending {
    Task { cpu: u16, by: Thread, pid: Thread, is_thread: bool, name: String },
    Rename { by: Thread, name: String },
    Send { cpu: u16, by: Thread, socket: u64, bytes: u32 },
    Established { socket: u64, made: Box<Socket> },
    Closed { socket: u64 },
}

const HARDWARE: u8 = 0x08; // TRACE_FLAG_HARDIRQ (include/linux/trace_events.h)
const DEFERRED: u8 = 0x10; // TRACE_FLAG_SOFTIRQ
const PREEMPTED: u64 = 0x100; // or a later one: the bit above all states (TASK_REPORT_MAX)
const CLONE_THREAD: u64 = 0x10000;
const ESTABLISHED: u64 = 1;
const CLOSE: u64 = 7;
const IPV6: u64 = 10;
const FUTEX_WAIT: [u64; 3] = [0, 9, 11]; // FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI
const FUTEX_COMMAND: u64 = 0x7f;

impl Record {
    /// `texts` are the format files of the events; `tasks` the threads that were recorded from the beginning.
    pub fn new(texts: &[String], tasks: HashMap<Thread, Task>) -> Self {
        let formats = texts.iter().take(limits::TRACE_FORMAT_LINES).filter_map(|text| Format::parse(text));
        let known = formats.filter_map(|format| Some((format.id, know(&format)?))).collect();
        Self { known, tasks, ..Self::default() }
    }

    /// Reads compressed blocks with their processors, up to the first that is damaged or has no room.
    pub fn read_blocks(&mut self, blocks: &[(u16, Vec<u8>)]) {
        for (cpu, block) in blocks {
            self.is_damaged = !self.read_block(*cpu, block);
            if self.is_damaged || self.is_cut {
                return;
            }
        }
        self.finish();
    }

    /// Reads a compressed block of pages of one processor, each behind its length; stops at damage and says so.
    pub fn read_block(&mut self, cpu: u16, block: &[u8]) -> bool {
        let mut pages = Vec::new();
        let Ok(decoder) = ruzstd::decoding::StreamingDecoder::new(block) else { return false };
        let whole = decoder.take(limits::TRACE_BLOCK as u64).read_to_end(&mut pages).is_ok();
        self.bytes = self.bytes.saturating_add(pages.len());
        self.is_cut |= self.bytes > limits::TRACE_BYTES;
        whole && (self.is_cut || self.read_pages(cpu, &pages))
    }

    /// The same, decompressed.
    pub fn read_pages(&mut self, cpu: u16, mut pages: &[u8]) -> bool {
        while let Some((length, rest)) = pages.split_first_chunk() {
            let Some((page, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { return false };
            if page.len() < HEADER || used(page).is_none() {
                return false;
            }
            self.losses += u64::from(follows_loss(page));
            for (time, place) in Records::new(page) {
                if self.is_cut {
                    return true;
                }
                if time >= limits::TRACE_TIME {
                    return false;
                }
                if let Some(event) = page.get(place) {
                    self.read_event(cpu, time as i64, event);
                }
            }
            pages = rest;
        }
        pages.is_empty()
    }

    fn read_event(&mut self, cpu: u16, time: i64, event: &[u8]) -> Option<()> {
        let id = u16::from_le_bytes(*event.first_chunk()?);
        let (_, known) = self.known.iter().find(|(other, _)| *other == id)?;
        let number = |field: &Field| read_number(event, field);
        let by = i32::from_le_bytes(*event.get(4..8)?.first_chunk()?);
        let kind = match known {
            Known::Switch { from, state, to } => {
                let state = number(state)?;
                let blocked = state & (PREEMPTED - 1) != 0 && state < PREEMPTED;
                Kind::Switch { from: number(from)? as Thread, blocked, to: number(to)? as Thread }
            }
            Known::Waking { woken } => {
                let by = match *event.get(2)? & (HARDWARE | DEFERRED) {
                    0 if by != 0 => Waker::Thread(by),
                    0 | DEFERRED => Waker::Deferred,
                    _ => Waker::Hardware,
                };
                Kind::Waking { by, woken: number(woken)? as Thread }
            }
            Known::Futex { word, op } => {
                FUTEX_WAIT.contains(&(number(op)? & FUTEX_COMMAND)).then_some(())?;
                Kind::Futex { by, word: number(word)? }
            }
            Known::Task { pid, flags, name } => {
                let is_thread = number(flags)? & CLONE_THREAD != 0;
                let pending =
                    Pending::Task { cpu, by, pid: number(pid)? as Thread, is_thread, name: read_text(event, name)? };
                return self.keep_pending(time, pending);
            }
            Known::Rename { name } => {
                let name = read_text(event, name)?;
                return self.keep_pending(time, Pending::Rename { by, name });
            }
            Known::Send { socket, result } => {
                let bytes = number(result)? as i32;
                let pending = Pending::Send { cpu, by, socket: number(socket)?, bytes: u32::try_from(bytes).ok()? };
                return self.keep_pending(time, pending);
            }
            Known::State(fields) => {
                let has_room = self.established < limits::TRACE_SOCKETS;
                let pending = read_state(time, event, fields, has_room)?;
                self.established += usize::from(matches!(pending, Pending::Established { .. }));
                return self.keep_pending(time, pending);
            }
        };
        self.keep(Event { time, cpu, kind })
    }

    fn keep(&mut self, event: Event) -> Option<()> {
        if self.has_room() {
            self.events.push(event);
        }
        None
    }

    fn keep_pending(&mut self, time: i64, pending: Pending) -> Option<()> {
        if self.has_room() {
            self.pending.push((time, pending));
        }
        None
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.events.len() + self.pending.len() < limits::TRACE_EVENTS;
        self.is_cut |= !has_room;
        has_room
    }

    fn keep_task(&mut self, by: Thread, pid: Thread, is_thread: bool, name: String) {
        let (of, root) = self.tasks.get(&by).map_or((by, by), |task| (task.process, task.root));
        let process = if is_thread { of } else { pid };
        if self.tasks.len() < limits::TRACE_THREADS {
            self.tasks.insert(pid, Task { process, root, name });
        }
    }

    /// Puts the events of all processors in order, after the last block.
    pub fn finish(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|(time, _)| *time);
        for (time, one) in pending {
            match one {
                Pending::Task { cpu, by, pid, is_thread, name } => {
                    self.keep_task(by, pid, is_thread, name);
                    let kind = Kind::Waking { by: Waker::Thread(by), woken: pid }; // who makes a thread wakes it
                    self.events.push(Event { time, cpu, kind });
                }
                Pending::Rename { by, name } => {
                    if let Some(task) = self.tasks.get_mut(&by) {
                        task.name = name;
                    }
                }
                Pending::Established { socket, made } => {
                    self.uses.insert(socket, self.sockets.len() as u32);
                    self.sockets.push(*made);
                }
                Pending::Closed { socket } => _ = self.uses.remove(&socket),
                Pending::Send { cpu, by, socket, bytes } => {
                    if let Some(&socket) = self.uses.get(&socket) {
                        self.events.push(Event { time, cpu, kind: Kind::Send { by, socket, bytes } });
                    }
                }
            }
        }
        self.events.sort_by_key(|event| event.time);
    }
}

/// The use of a socket that begins or ends with a change of its TCP state; none for other states.
fn read_state(time: i64, event: &[u8], fields: &StateFields, has_room: bool) -> Option<Pending> {
    let number = |field: &Field| read_number(event, field);
    let socket = number(&fields.socket)?;
    match number(&fields.to)? {
        ESTABLISHED if has_room => {
            let family = usize::from(number(&fields.family)? == IPV6);
            let [own, peer] = fields.addresses.each_ref().map(|of| {
                let field = of.get(family)?;
                event.get(field.offset..field.offset + field.size).map(<[u8]>::to_vec)
            });
            let ports = fields.ports.each_ref().map(|port| number(port).unwrap_or(0) as u16);
            let made = Socket { time, addresses: [own?, peer?], ports };
            Some(Pending::Established { socket, made: Box::new(made) })
        }
        ESTABLISHED | CLOSE => Some(Pending::Closed { socket }), // its former use ends
        _ => None,
    }
}

/// Which of the events that are read a format describes, if one.
fn know(format: &Format) -> Option<Known> {
    let field = |name: &str| format.field(name).cloned();
    let located = |name: &str| field(name).filter(|field| field.size <= 16);
    let sized = |name: &str, size: usize| field(name).filter(|field| field.size == size);
    Some(match format.name.as_str() {
        "sched_switch" => {
            Known::Switch { from: field("prev_pid")?, state: field("prev_state")?, to: field("next_pid")? }
        }
        "sched_waking" => Known::Waking { woken: field("pid")? },
        "task_newtask" => Known::Task { pid: field("pid")?, flags: field("clone_flags")?, name: located("comm")? },
        "task_rename" => Known::Rename { name: located("newcomm")? },
        "sock_send_length" => Known::Send { socket: field("sk")?, result: field("ret")? },
        "inet_sock_set_state" => Known::State(Box::new(StateFields {
            socket: field("skaddr")?,
            to: field("newstate")?,
            ports: [sized("sport", 2)?, sized("dport", 2)?],
            family: field("family")?,
            addresses: [[sized("saddr", 4)?, sized("saddr_v6", 16)?], [sized("daddr", 4)?, sized("daddr_v6", 16)?]],
        })),
        "sys_enter_futex" => Known::Futex { word: field("uaddr")?, op: field("op")? },
        _ => return None,
    })
}

/// A name of up to 16 bytes, printable.
fn read_text(event: &[u8], field: &Field) -> Option<String> {
    let mut bytes = event.get(field.offset..field.offset + field.size)?;
    if field.is_located {
        let reference = read_number(event, field)?;
        let start = (reference & 0xffff) as usize;
        bytes = event.get(start..start + (reference >> 16 & 0xffff).min(16) as usize)?;
    }
    let text = bytes.split(|byte| *byte == 0).next()?;
    Some(text.iter().take(16).map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '?' }).collect())
}
