//! Link types: the first header of a packet, and BSD loopback and raw IP, which are too small for files of their own.
//! Numbers and layouts: the registry at <https://www.tcpdump.org/linktypes.html>.

use super::bytes::View;
use super::ethernet::{self, ether_type};
use super::outcome::{Layer, NotTcp};
use super::outer_layers::Context;
use super::step::{Found, Step, Stop};
use super::{cooked, ip, ipv4, ipv6, ppp};

const NULL: u32 = 0;
const ETHERNET: u32 = 1;
const PPP: u32 = 9;
/// DLT_RAW where the file was written with the platform's own number: 12 on most systems, 14 on OpenBSD.
const RAW_MOST: u32 = 12;
const RAW_OPENBSD: u32 = 14;
const RAW: u32 = 101;
const LOOP: u32 = 108;
const LINUX_SLL: u32 = 113;
const IPV4: u32 = 228;
const IPV6: u32 = 229;
const LINUX_SLL2: u32 = 276;

/// The path of nearly all packets: TCP in IP in an Ethernet or Linux cooked header or none, nothing in between. None
/// means only that [`dissect`] must walk the layers one by one. It reads headers with the same functions; it exists
/// because all of it can be compiled into one piece that keeps its values in registers, which halves the time.
#[inline]
pub(super) fn find_tcp(link_type: u32, view: View<'_>) -> Option<Found<'_>> {
    let (ether_type, rest, context) = match link_type {
        ETHERNET => {
            let (ether_type, rest) = ethernet::header(view).ok()?;
            (ether_type, rest, Context::default())
        }
        LINUX_SLL => cooked::header_v1(view).ok()?,
        LINUX_SLL2 => cooked::header_v2(view).ok()?,
        RAW => (ip::ether_type(view)?, view, Context::default()),
        _ => return None,
    };
    match ether_type {
        ether_type::IPV4 => ipv4::find_tcp(rest, context),
        ether_type::IPV6 => ipv6::find_tcp(rest, context),
        _ => None,
    }
}

pub(super) fn dissect(link_type: u32, view: View<'_>) -> Step<'_> {
    let context = Context::default();
    match link_type {
        ETHERNET => ethernet::dissect(view, context),
        LINUX_SLL => cooked::dissect_v1(view),
        LINUX_SLL2 => cooked::dissect_v2(view),
        NULL | LOOP => loopback(view, context),
        RAW | RAW_MOST | RAW_OPENBSD => ip::dissect(view, context),
        IPV4 => ipv4::dissect(view, context),
        IPV6 => ipv6::dissect(view, context),
        PPP => ppp::dissect(view, context),
        _ => Err(Stop::UnsupportedLink(link_type)),
    }
}

/// An address family before an IP packet. LINKTYPE_NULL has it in the byte order of the recording host, which may not
/// be the reader's; LINKTYPE_LOOP in network order. Families are small, so the order is told by where the zeros are.
fn loopback(view: View<'_>, context: Context) -> Step<'_> {
    const AF_INET: u32 = 2;
    let (header, rest) = view.split::<4>(Layer::Loopback)?;
    let family = header.be32::<0>();
    match family.min(family.swap_bytes()) {
        AF_INET => ipv4::dissect(rest, context),
        // AF_INET6 on Linux, Windows (Npcap), NetBSD and OpenBSD, FreeBSD, and Darwin.
        10 | 23 | 24 | 28 | 30 => ipv6::dissect(rest, context),
        other => Err(NotTcp::OtherFamily(other).into()),
    }
}
