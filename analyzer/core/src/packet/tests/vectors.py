"""Writes vectors.txt: packets built by scapy, each with what must be found in it.

Run as `python3 vectors.py > vectors.txt` with scapy 2.x installed. With an argument, a folder, it also writes one pcap
per link type there, to compare with `tshark`. A line is: name, LINKTYPE_ number, length on the wire, bytes, meaning.
"""

import struct
import sys

from scapy.all import *  # noqa: F403 (every name below in capitals is a scapy layer)
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.mpls import MPLS

A4, B4, A6, B6 = "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"
BASE = dict(
    src=A4,
    dst=B4,
    seq=0x01020304,
    ack=0x0A0B0C0D,
    flags="PSH,ACK",
    win=501,
    urg=0,
    mss="-",
    ws="-",
    sackok=0,
    sack="",
    ts="111/222",
    options="ok",
    data=b"hello",
    wire=None,
    id="0x1234",
    ttl=64,
    ecn=0,
    tunnel="-",
    dir="Unknown",
    interface=0,
)
SIX = dict(src=A6, dst=B6, id="-", ttl=63)
lines, pcaps = [], {}


def meaning(**changes):
    v = {**BASE, **changes}
    length = len(v["data"]) if v["wire"] is None else v["wire"]
    return (
        f"{v['src']}:40000 > {v['dst']}:50051 seq={v['seq']} ack={v['ack']} [{v['flags']}] win={v['win']} "
        f"urg={v['urg']} mss={v['mss']} ws={v['ws']} sackok={v['sackok']} sack={v['sack']} ts={v['ts']} "
        f"options={v['options']} data={v['data'].hex()}/{length} id={v['id']} ttl={v['ttl']} ecn={v['ecn']} "
        f"tunnel={v['tunnel']} dir={v['dir']} if={v['interface']}"
    )


def add(name, link, packet, expected, wire_len=None):
    data = bytes(packet)
    lines.append(f"{name}|{link}|{wire_len or len(data)}|{data.hex()}|{expected}")
    pcaps.setdefault(link, []).append((name, data, wire_len or len(data)))


def tcp(options=None, data=b"hello", **fields):
    options = [("NOP", None), ("NOP", None), ("Timestamp", (111, 222))] if options is None else options
    fields = {"flags": "PA", **fields}
    return TCP(sport=40000, dport=50051, seq=0x01020304, ack=0x0A0B0C0D, window=501, options=options, **fields) / data


def ip4(**fields):
    return IP(**{**dict(src=A4, dst=B4, id=0x1234, ttl=64), **fields})


def ip6(**fields):
    return IPv6(**{**dict(src=A6, dst=B6, hlim=63), **fields})


def outer4(**fields):
    return IP(src="192.0.2.1", dst="192.0.2.2", id=0x7777, ttl=9, tos=3, **fields)


def outer6(**fields):
    return IPv6(src="2001:db8::1", dst="2001:db8::2", hlim=9, tc=3, **fields)


ETH = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
WHO_HAS = ARP(hwsrc=ETH.src, psrc=A4, hwdst=ETH.dst, pdst=B4)
FOUR, SIX_PACKET = bytes(ip4() / tcp()), bytes(ip6() / tcp())
M4, M6 = meaning(), meaning(**SIX)

# Link types
add("ethernet ipv4", 1, ETH / ip4() / tcp(), M4)
add("ethernet ipv6", 1, ETH / ip6() / tcp(), M6)
add("one tag", 1, ETH / Dot1Q(vlan=5) / ip4() / tcp(), M4)
add("802.1ad", 1, ETH / Dot1AD(vlan=5) / Dot1Q(vlan=6) / ip6() / tcp(), M6)
add("four tags", 1, ETH / Dot1AD() / Dot1AD() / Dot1Q() / Dot1Q() / ip4() / tcp(), M4)
add(
    "five tags", 1, ETH / Dot1AD() / Dot1AD() / Dot1Q() / Dot1Q() / Dot1Q() / ip4() / tcp(), "malformed Vlan TooMany 30"
)
add("old stacked tags", 1, bytes(ETH)[:12] + bytes.fromhex("910000058100000608 00".replace(" ", "")) + FOUR, M4)
add("mpls", 1, ETH / MPLS(label=7, s=1) / ip4() / tcp(), M4)
add("mpls two labels", 1, ETH / MPLS(label=7, s=0) / MPLS(label=8, s=1) / ip6() / tcp(), M6)
add("mpls pseudowire", 1, bytes(ETH)[:12] + bytes.fromhex("8847 00007140 00000000") + FOUR, "other EtherType 0x8847")
add(
    "mpls nine labels",
    1,
    bytes(ETH)[:12] + bytes.fromhex("8847") + bytes.fromhex("00007040") * 8 + FOUR,
    "malformed Mpls TooMany 46",
)
add("pppoe", 1, ETH / PPPoE(sessionid=3) / PPP(proto=0x21) / ip4() / tcp(), M4)
add("pppoe padded", 1, bytes(ETH / PPPoE(sessionid=3) / PPP(proto=0x57) / ip6() / tcp()) + bytes(8), M6)
add("pppoe lcp", 1, ETH / PPPoE(sessionid=3) / PPP(proto=0xC021) / b"\1\2\0\4", "other PPP protocol 0xc021")
add(
    "pppoe version",
    1,
    bytes(ETH)[:12] + bytes.fromhex("8864 2100 0003 0004 0021") + FOUR,
    "malformed Pppoe Version(33) 14",
)
SLL = "{:04x} 0001 0006 020000000001 0000 {:04x}"
SLL2 = "{:04x} 0000 {:08x} 0001 {:02x} 06 020000000001 0000"
for kind, way in ((0, "Incoming"), (1, "Incoming"), (2, "Incoming"), (3, "Unknown"), (4, "Outgoing")):
    add(f"sll {kind}", 113, bytes.fromhex(SLL.format(kind, 0x0800)) + FOUR, meaning(dir=way))
    add(
        f"sll2 {kind}",
        276,
        bytes.fromhex(SLL2.format(0x86DD, 0x01020007, kind)) + SIX_PACKET,
        meaning(**SIX, dir=way, interface=0x01020007),
    )
add("sll vlan", 113, bytes.fromhex(SLL.format(0, 0x8100)) + bytes.fromhex("00050800") + FOUR, meaning(dir="Incoming"))
add("sll2 arp", 276, bytes.fromhex(SLL2.format(0x0806, 2, 0)) + bytes(WHO_HAS), "other ARP")
for family in (24, 28, 30):
    add(f"null little-endian {family}", 0, struct.pack("<I", family) + SIX_PACKET, M6)
    add(f"null big-endian {family}", 0, struct.pack(">I", family) + SIX_PACKET, M6)
add("null little-endian", 0, struct.pack("<I", 2) + FOUR, M4)
add("null big-endian", 0, struct.pack(">I", 2) + FOUR, M4)
add("null other", 0, struct.pack("<I", 7) + FOUR, "other address family 7")
add("loop", 108, struct.pack(">I", 2) + FOUR, M4)
add("loop ipv6", 108, struct.pack(">I", 24) + SIX_PACKET, M6)
for link in (101, 12, 14):
    add(f"raw {link} ipv4", link, FOUR, M4)
    add(f"raw {link} ipv6", link, SIX_PACKET, M6)
add("raw version", 101, b"\x55" + FOUR[1:], "malformed Ip Version(5) 0")
add("ipv4 link", 228, FOUR, M4)
add("ipv4 link with ipv6", 228, SIX_PACKET, "malformed Ipv4 Version(6) 0")
add("ipv6 link", 229, SIX_PACKET, M6)
add("ipv6 link with ipv4", 229, FOUR + bytes(20), "malformed Ipv6 Version(4) 0")
add("ppp", 9, bytes.fromhex("0021") + FOUR, M4)
add("ppp framed", 9, bytes.fromhex("ff030057") + SIX_PACKET, M6)
add("ppp compressed protocol", 9, bytes.fromhex("21") + FOUR, M4)
add("unknown link", 147, FOUR, "unsupported link 147")

# IPv4
add("ipv4 options", 1, ETH / ip4(options=[IPOption_Router_Alert()]) / tcp(), M4)
add("ipv4 forty option bytes", 1, ETH / ip4(options=[IPOption_NOP()] * 40) / tcp(), M4)
add("ipv4 ecn", 1, ETH / ip4(tos=0xB9) / tcp(), meaning(ecn=1))
add("ipv4 padding", 1, bytes(ETH / ip4() / tcp(options=[], data=b"")) + bytes(6), meaning(ts="-", data=b""))
add("ipv4 total length 0", 1, ETH / ip4(len=0) / tcp(data=b"x" * 3000), meaning(data=b"x" * 3000))
add(
    "ipv4 total length 0 cut",
    1,
    bytes(ETH / ip4(len=0) / tcp(data=b"x" * 20)),
    meaning(data=b"x" * 20, wire=9000),
    wire_len=14 + 20 + 32 + 9000,
)
add("ipv4 cut", 1, bytes(ETH / ip4() / tcp(data=b"x" * 100))[:80], meaning(data=b"x" * 14, wire=100), wire_len=166)
add("ipv4 cut, record rewritten", 1, bytes(ETH / ip4() / tcp(data=b"x" * 100))[:80], meaning(data=b"x" * 14, wire=100))
add("ipv4 dont fragment", 1, ETH / ip4(flags="DF") / tcp(), M4)
add("ipv4 header length", 1, ETH / ip4(ihl=4) / tcp(), "malformed Ipv4 HeaderLength(16) 14")
add("ipv4 total length", 1, ETH / ip4(len=19) / tcp(), "malformed Ipv4 TotalLength(19) 14")
add("ipv4 authentication", 1, ETH / ip4() / AH(nh=6, payloadlen=4, icv=b"0" * 12, padding=b"") / tcp(), M4)
# IPv6
add("ipv6 ecn", 1, ETH / ip6(tc=0xBA) / tcp(), meaning(**SIX, ecn=2))
add(
    "ipv6 extension headers",
    1,
    ETH
    / ip6()
    / IPv6ExtHdrHopByHop()
    / IPv6ExtHdrDestOpt()
    / IPv6ExtHdrRouting()
    / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(12))])
    / tcp(),
    M6,
)
add(
    "ipv6 authentication",
    1,
    ETH / ip6() / AH(nh=60, payloadlen=4, icv=b"0" * 12, padding=b"") / IPv6ExtHdrDestOpt() / tcp(),
    M6,
)
add("ipv6 atomic fragment", 1, ETH / ip6() / IPv6ExtHdrFragment(id=9) / tcp(), M6)
eight = ip6() / IPv6ExtHdrHopByHop()
for _ in range(7):
    eight /= IPv6ExtHdrDestOpt()
add("ipv6 eight extension headers", 1, ETH / eight / tcp(), M6)
add("ipv6 nine extension headers", 1, ETH / eight / IPv6ExtHdrDestOpt() / tcp(), "malformed Ipv6Extension TooMany 118")
add(
    "ipv6 jumbo",
    1,
    ETH / ip6(plen=0) / IPv6ExtHdrHopByHop(options=[Jumbo(jumboplen=70000)]) / tcp(data=b"x" * 10),
    meaning(**SIX, data=b"x" * 10, wire=70000 - 8 - 32),
    wire_len=14 + 40 + 70000,
)
add(
    "ipv6 big tcp",
    1,
    ETH / ip6(plen=0) / tcp(data=b"x" * 10),
    meaning(**SIX, data=b"x" * 10, wire=70000 - 32),
    wire_len=14 + 40 + 70000,
)
add("ipv6 padding", 1, bytes(ETH / ip6() / tcp(options=[], data=b"")) + bytes(5), meaning(**SIX, ts="-", data=b""))
add("ipv6 no next header", 1, ETH / ip6(nh=59), "other IP protocol 59")
# Tunnels
UDP_VXLAN = UDP(sport=55555, dport=4789)
PLAIN_VXLAN = bytes.fromhex("08000000 00002a00")
add("vxlan", 1, ETH / outer4() / UDP_VXLAN / PLAIN_VXLAN / ETH / ip4() / tcp(), meaning(tunnel="Vxlan"))
add(
    "vxlan linux port",
    1,
    ETH / outer6() / UDP(sport=5, dport=8472) / PLAIN_VXLAN / ETH / Dot1Q() / ip6() / tcp(),
    meaning(**SIX, tunnel="Vxlan"),
)
add(
    "vxlan group policy",
    1,
    ETH / outer4() / UDP_VXLAN / bytes.fromhex("8808 1234 00002a00") / ETH / ip4() / tcp(),
    meaning(tunnel="Vxlan"),
)
for name, inner, expected in (("ethernet", ETH / ip4(), M4), ("ipv4", ip4(), M4), ("ipv6", ip6(), M6)):
    add(
        f"vxlan gpe {name}",
        1,
        ETH / outer4() / UDP(sport=5, dport=4790) / VXLAN(vni=42) / inner / tcp(),
        expected.replace("tunnel=-", "tunnel=Vxlan"),
    )
add(
    "vxlan gpe other",
    1,
    ETH / outer4() / UDP(sport=5, dport=4790) / bytes.fromhex("0c000004 00002a00") / b"x",
    "other UDP",
)
add(
    "vxlan direction",
    276,
    bytes.fromhex(SLL2.format(0x0800, 3, 4)) + bytes(outer4() / UDP_VXLAN / PLAIN_VXLAN / ETH / ip4() / tcp()),
    meaning(tunnel="Vxlan", dir="Outgoing", interface=3),
)
add(
    "vxlan in vxlan",
    1,
    ETH / outer4() / UDP_VXLAN / PLAIN_VXLAN / ETH / outer6() / UDP_VXLAN / PLAIN_VXLAN / ETH / ip4() / tcp(),
    meaning(tunnel="Vxlan"),
)
add(
    "vxlan port, no vxlan",
    1,
    ETH / outer4() / UDP_VXLAN / bytes.fromhex("00000000 00002a00") / ETH / ip4() / tcp(),
    "other UDP",
)
add(
    "vxlan port, reserved bits",
    1,
    ETH / outer4() / UDP_VXLAN / bytes.fromhex("08000000 00002a01") / ETH / ip4() / tcp(),
    "other UDP",
)
add("vxlan port, short", 1, ETH / outer4() / UDP_VXLAN / b"\x08\0\0", "other UDP")
add("vxlan inner arp", 1, ETH / outer4() / UDP_VXLAN / PLAIN_VXLAN / ETH / WHO_HAS, "other ARP")
UDP_GENEVE = UDP(sport=55555, dport=6081)
add(
    "geneve",
    1,
    ETH / outer4() / UDP_GENEVE / GENEVE(vni=42, proto=0x6558) / ETH / ip4() / tcp(),
    meaning(tunnel="Geneve"),
)
add(
    "geneve options",
    1,
    ETH
    / outer6()
    / UDP_GENEVE
    / GENEVE(vni=42, proto=0x6558, options=[GeneveOptions(classid=0x102, type=0x80, data=b"12345678")])
    / ETH
    / ip6()
    / tcp(),
    meaning(**SIX, tunnel="Geneve"),
)
add("geneve ipv4", 1, ETH / outer4() / UDP_GENEVE / GENEVE(proto=0x0800) / ip4() / tcp(), meaning(tunnel="Geneve"))
add(
    "geneve ipv6",
    1,
    ETH / outer4() / UDP_GENEVE / GENEVE(proto=0x86DD) / ip6() / tcp(),
    meaning(**SIX, tunnel="Geneve"),
)
add(
    "geneve port, version 1",
    1,
    ETH / outer4() / UDP_GENEVE / bytes.fromhex("4000655800002a00") / ETH / ip4() / tcp(),
    "other UDP",
)
add(
    "geneve port, other protocol",
    1,
    ETH / outer4() / UDP_GENEVE / bytes.fromhex("0000123400002a00") / ETH / ip4() / tcp(),
    "other UDP",
)
add(
    "geneve port, options beyond the end",
    1,
    ETH / outer4() / UDP_GENEVE / bytes.fromhex("3f00655800002a00") / b"1234",
    "other UDP",
)
add("gre", 1, ETH / outer4() / GRE() / ip4() / tcp(), meaning(tunnel="Gre"))
add(
    "gre all fields",
    1,
    ETH / outer6() / GRE(chksum_present=1, key_present=1, seqnum_present=1, key=5, sequence_number=6) / ip6() / tcp(),
    meaning(**SIX, tunnel="Gre"),
)
add("gre key", 1, ETH / outer4() / GRE(key_present=1, key=5) / ip4() / tcp(), meaning(tunnel="Gre"))
add("gre ethernet", 1, ETH / outer4() / GRE(proto=0x6558) / ETH / ip4() / tcp(), meaning(tunnel="Gre"))
add("gre mpls", 1, ETH / outer4() / GRE(proto=0x8847) / MPLS(s=1) / ip4() / tcp(), meaning(tunnel="Gre"))
add(
    "gre version 1",
    1,
    ETH / outer4(proto=47) / bytes.fromhex("3001880b 0004 0001 00000001 ff03") / b"xx",
    "other IP protocol 47",
)
add("erspan I", 1, ETH / outer4(proto=47) / bytes.fromhex("000088be") / ETH / ip4() / tcp(), meaning(tunnel="Erspan"))
add(
    "erspan II",
    1,
    ETH / outer4(proto=47) / bytes.fromhex("100088be 00000001 1005 0007 00000000") / ETH / ip4() / tcp(),
    meaning(tunnel="Erspan"),
)
add(
    "erspan III",
    1,
    ETH / outer4(proto=47) / bytes.fromhex("100022eb 00000001 2005 0007 12345678 0000 0000") / ETH / ip4() / tcp(),
    meaning(tunnel="Erspan"),
)
add(
    "erspan III with subheader",
    1,
    ETH
    / outer4(proto=47)
    / bytes.fromhex("100022eb 00000001 2005 0007 12345678 0000 0001")
    / bytes(8)
    / ETH
    / ip4()
    / tcp(),
    meaning(tunnel="Erspan"),
)
add("ip in ip", 1, ETH / outer4() / ip4() / tcp(), meaning(tunnel="IpInIp"))
add("6in4", 1, ETH / outer4() / ip6() / tcp(), meaning(**SIX, tunnel="IpInIp"))
add("4in6", 1, ETH / outer6(nh=4) / ip4() / tcp(), meaning(tunnel="IpInIp"))
add("6in6", 1, ETH / outer6(nh=60) / IPv6ExtHdrDestOpt(nh=41) / ip6() / tcp(), meaning(**SIX, tunnel="IpInIp"))
add("four tunnels", 1, ETH / outer4() / outer4() / outer4() / outer4() / ip4() / tcp(), meaning(tunnel="IpInIp"))
add(
    "five tunnels",
    1,
    ETH / outer4() / outer4() / outer4() / outer4() / outer4() / ip4() / tcp(),
    "malformed Ipv4 TooDeep 114",
)
add(
    "gre inside vxlan",
    1,
    ETH / outer4() / UDP_VXLAN / PLAIN_VXLAN / ETH / outer4() / GRE() / ip4() / tcp(),
    meaning(tunnel="Gre"),
)
# TCP
add(
    "syn",
    1,
    ETH
    / ip4()
    / tcp(
        flags="SEC",
        data=b"",
        options=[("MSS", 1460), ("SAckOK", b""), ("Timestamp", (111, 0)), ("NOP", None), ("WScale", 7)],
    ),
    meaning(flags="SYN,ECE,CWR", data=b"", mss=1460, ws=7, sackok=1, ts="111/0"),
)
add(
    "window scale above 14",
    1,
    ETH / ip4() / tcp(flags="S", data=b"", options=[("WScale", 15), ("NOP", None)]),
    meaning(flags="SYN", data=b"", ws=15, ts="-"),
)
add(
    "sack",
    1,
    ETH / ip4() / tcp(flags="A", data=b"", options=[("NOP", None), ("NOP", None), ("SAck", (1, 2, 3, 4, 5, 6, 7, 8))]),
    meaning(flags="ACK", data=b"", sack="1-2,3-4,5-6,7-8", ts="-"),
)
add(
    "sack and timestamps",
    1,
    ETH
    / ip4()
    / tcp(
        flags="A",
        data=b"",
        options=[
            ("NOP", None),
            ("NOP", None),
            ("Timestamp", (111, 222)),
            ("NOP", None),
            ("NOP", None),
            ("SAck", (4294967295, 4)),
        ],
    ),
    meaning(flags="ACK", data=b"", sack="4294967295-4"),
)
add(
    "every flag",
    1,
    ETH / ip4() / tcp(flags=0x1FF, urgptr=9),
    meaning(flags="FIN,SYN,RST,PSH,ACK,URG,ECE,CWR,NS", urg=9),
)
add("no flags", 1, ETH / ip4() / tcp(flags=0), meaning(flags="none"))
add("unknown option", 1, ETH / ip4() / tcp(options=[(30, b"12345678"), ("Timestamp", (111, 222))]), M4)
RAW_TCP = "9c40 c383 01020304 0a0b0c0d {}018 01f5 0000 0000 {}"


def odd(offset, options):
    return ETH / ip4(proto=6) / bytes.fromhex(RAW_TCP.format(offset, options)) / b"hello"


add("option length 0", 1, odd(7, "02040578 0800 0000"), meaning(mss=1400, ts="-", options="malformed"))
add("option length 1", 1, odd(6, "1e010000"), meaning(ts="-", options="malformed"))
add("option beyond the header", 1, odd(6, "01 080a00"), meaning(ts="-", options="malformed"))
add("option without length", 1, odd(6, "010101 02"), meaning(ts="-", options="malformed"))
add("mss of wrong length", 1, odd(7, "0203 05 0303 07 0000"), meaning(ts="-", options="malformed"))
add("sack of wrong length", 1, odd(7, "0506 00000001 0101"), meaning(ts="-", options="malformed"))
add("sack without blocks", 1, odd(6, "0502 0101"), meaning(ts="-", options="malformed"))
add("end of options", 1, odd(7, "02040578 00 080a 00"), meaning(mss=1400, ts="-"))
add(
    "cut inside options",
    1,
    bytes(ETH / ip4() / tcp(options=[("MSS", 1460), ("Timestamp", (111, 222)), ("NOP", None), ("NOP", None)]))[:60],
    meaning(mss=1460, ts="-", options="cut", data=b"", wire=5),
    wire_len=14 + 20 + 36 + 5,
)
add("cut inside the fixed header", 1, bytes(ETH / ip4() / tcp())[:53], "malformed Tcp Cut 34", wire_len=71)
add("ends inside the fixed header", 1, bytes(ETH / ip4(proto=6) / bytes(19)), "malformed Tcp Short 34")
add("data offset 4", 1, odd(4, ""), "malformed Tcp HeaderLength(16) 34")
add("data offset beyond the packet", 1, odd("f", ""), "malformed Tcp HeaderLength(60) 34")
# Others
add("arp", 1, ETH / WHO_HAS, "other ARP")
add("udp", 1, ETH / ip4() / UDP(dport=53) / b"x", "other UDP")
add("icmp", 1, ETH / ip4() / ICMP(), "other ICMP")
add("icmpv6", 1, ETH / ip6() / ICMPv6EchoRequest(), "other ICMP")
ABOUT4, ABOUT6 = (f"about {a}:40000 > {b}:50051" for a, b in ((A4, B4), (A6, B6)))
quoted4, quoted6 = bytes(ip4() / tcp()), bytes(ip6() / tcp())
to4, to6 = ETH / ip4(src=B4, dst=A4), ETH / ip6(src=B6, dst=A6)
add("icmp host unreachable", 1, to4 / ICMP(type=3, code=1) / quoted4[:28], f"icmp 3/1 of {B4} mtu=0 {ABOUT4}")
add(
    "icmp fragmentation needed",
    1,
    to4 / ICMP(type=3, code=4, nexthopmtu=1400) / quoted4,
    f"icmp 3/4 of {B4} mtu=1400 {ABOUT4}",
)
add("icmp to another host", 1, ETH / ip4() / ICMP(type=3, code=1) / quoted4, "other ICMP")
add("icmp quoting 7 bytes of TCP", 1, to4 / ICMP(type=3, code=1) / quoted4[:27], "other ICMP")
add("icmp quoting a later fragment", 1, to4 / ICMP(type=3, code=1) / bytes(ip4(frag=9) / tcp()), "other ICMP")
add("icmp quoting UDP", 1, to4 / ICMP(type=3, code=3) / bytes(ip4() / UDP()), "other ICMP")
add("icmp time exceeded", 1, to4 / ICMP(type=11) / quoted4, "other ICMP")
add("icmp of type 2", 1, to4 / ICMP(type=2) / quoted6, "other ICMP")
add("icmpv6 no route", 1, to6 / ICMPv6DestUnreach(code=0) / quoted6[:48], f"icmp 1/0 of {B6} mtu=0 {ABOUT6}")
add("icmpv6 too big", 1, to6 / ICMPv6PacketTooBig(mtu=1300) / quoted6, f"icmp 2/0 of {B6} mtu=1300 {ABOUT6}")
add("icmpv6 quoting IPv4", 1, to6 / ICMPv6DestUnreach() / quoted4, "other ICMP")
add("sctp", 1, ETH / ip4() / SCTP(), "other IP protocol 132")
add("lldp", 1, Ether(src=ETH.src, dst=ETH.dst, type=0x88CC) / b"xx", "other EtherType 0x88cc")
add("spanning tree", 1, bytes(ETH)[:12] + bytes.fromhex("0026424203") + bytes(35), "other IEEE 802.3 LLC")

print("\n".join(lines))
for link, packets in pcaps.items() if len(sys.argv) > 1 else ():
    with open(f"{sys.argv[1]}/vectors-{link}.pcap", "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, link))
        for at, (_, data, wire_len) in enumerate(packets):
            file.write(struct.pack("<IIII", at, 0, len(data), wire_len) + data)
