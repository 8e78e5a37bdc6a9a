//! The second pass: writes every packet anew.

use crate::capture_file::CaptureReader;
use crate::limits;
use crate::packet::{Dissector, Outcome};
use crate::run::router::Router;

use super::file::Writer;
use super::learning::Learner;
use super::packet::Rewriter;
use super::packet_queue::Queue;
use super::places::{Place, payload_of};
use super::stream::Carries;

/// A connection, and what was made of it.
#[derive(Clone, Debug)]
pub struct Treated {
    /// Both ends as they are written: the sender of the first packet, and the other.
    pub ends: [String; 2],
    /// `http2`, `tls`, `other` or `nothing`.
    pub carries: &'static str,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Format of what is written.
    pub format: &'static str,
    /// Packets written.
    pub packets: u64,
    /// Packets of other protocols than TCP: only their link and IP headers stay.
    pub not_tcp: u64,
    /// IP fragments whose datagram is not whole, or no TCP: only their IP headers stay.
    pub fragments: u64,
    /// Packets that cannot be read as what they claim to be.
    pub unreadable: u64,
    /// Addresses with their replacements.
    pub addresses: Vec<(String, String)>,
    /// Methods with their replacements.
    pub methods: Vec<(String, String)>,
    /// Implementations with their replacements.
    pub agents: Vec<(String, String)>,
    /// Debug texts of GOAWAY frames that were left out.
    pub reasons: Vec<String>,
    /// The connections by row.
    pub connections: Vec<Treated>,
}

/// The second pass.
pub(super) struct Writing {
    pub(super) reader: CaptureReader,
    pub(super) dissector: Dissector,
    pub(super) router: Router,
    pub(super) places: Vec<[Place; 2]>,
    pub(super) rewriter: Rewriter,
    pub(super) writer: Writer,
    pub(super) queue: Queue,
    pub(super) learner: Box<Learner>,
    pub(super) report: Report,
}

impl Writing {
    pub(super) fn step(&mut self, packets: u32) -> Option<Vec<u8>> {
        for _ in 0..packets {
            if !self.packet() {
                return None;
            }
            if self.writer.out.len() >= limits::SCRUB_OUTPUT {
                break;
            }
        }
        Some(std::mem::take(&mut self.writer.out))
    }

    fn packet(&mut self) -> bool {
        let Self { reader, dissector, router, places, rewriter, writer, queue, learner, report } = self;
        let Some(packet) = reader.next_packet() else { return false };
        report.packets += 1;
        let outcome = dissector.dissect(packet.link_type, packet.captured, packet.original_len, packet.time_ns);
        let payload = match outcome {
            Outcome::Tcp(ref segment) => payload_of(segment, packet.captured, router, places, &learner.conversations),
            Outcome::NotTcp(_) => {
                report.not_tcp += 1;
                None
            }
            Outcome::Dns(_) | Outcome::Icmp(_) => None,
            Outcome::Fragment => None,
            Outcome::Malformed(_) | Outcome::UnsupportedLink(_) => {
                report.unreadable += 1;
                None
            }
        };
        let key = &learner.shared.replacer.key;
        let (bytes, fragment) = rewriter.rewrite(packet.link_type, packet.captured, packet.original_len, payload, key);
        queue.push(&packet, bytes, fragment, writer);
        // a payload that is not in the packet's own bytes is that of a datagram which this fragment completes
        if let (Some(fragment), Some(payload)) = (fragment, payload.filter(|payload| payload.at.is_none())) {
            queue.complete(&fragment, payload, rewriter, key);
        }
        queue.write_ready(writer);
        true
    }

    pub(super) fn finish(mut self) -> (Vec<u8>, Report) {
        self.queue.write_all(&mut self.writer);
        self.writer.finish(self.reader.info());
        let Learner { conversations, mut shared, .. } = *self.learner;
        let mut report = Report { fragments: self.queue.emptied, ..self.report };
        // as long as names are kept
        let kept = |octets: &[u8]| octets.get(..limits::INTERNED_BYTES).unwrap_or(octets).to_vec();
        let text = |octets: &[u8]| String::from_utf8_lossy(&kept(octets)).into_owned();
        let methods = shared.replacer.methods().iter();
        report.methods = methods.map(|(before, after)| (text(before), text(after))).collect();
        report.agents = shared.replacer.agents().iter().map(|(a, b)| (a.clone(), b.clone())).collect();
        report.reasons = std::mem::take(&mut shared.reasons);
        let (addresses, key) = (&mut self.rewriter.addresses, &shared.replacer.key);
        for (row, known) in self.router.known().iter().enumerate() {
            let ends = [known.first_sender, known.other].map(|(address, port)| {
                let mapped = match address.ip() {
                    std::net::IpAddr::V4(ip) => std::net::Ipv4Addr::from(addresses.v4(ip.into(), key)).into(),
                    std::net::IpAddr::V6(ip) => std::net::Ipv6Addr::from(addresses.v6(ip.into(), key)).into(),
                };
                std::net::SocketAddr::new(mapped, port).to_string()
            });
            let carries = match conversations.get(row).and_then(|conversation| Some(conversation.as_ref()?.carries)) {
                Some(Carries::Http2) => "http2",
                Some(Carries::Tls) => "tls",
                Some(Carries::Other) => "other",
                Some(Carries::Nothing) | None => "nothing",
            };
            report.connections.push(Treated { ends, carries });
        }
        report.addresses = addresses.texts();
        (self.writer.out, report)
    }
}
