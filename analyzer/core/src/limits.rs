//! Every bound on what the input may make the program keep or do, in one place.
//!
//! A capture is hostile input: each number here is what one connection, one header block or one file can cost at
//! most. Reaching a limit is recorded as a problem and never stops the analysis of the rest.

// --- Capture files ---

/// Bytes asked of a file or pipe at a time: large enough to hide the cost of a system call, small enough for a core's cache.
pub const CAPTURE_READ_BUFFER: usize = 256 * 1024;

/// The longest packet that any capture may hold, in bytes: libpcap's `MAXIMUM_SNAPLEN` (pcap-int.h), Wireshark's
/// `WTAP_MAX_PACKET_SIZE_STANDARD`; room for every offload packet that tcpdump or dumpcap can record.
pub const CAPTURE_PACKET_LENGTH: u32 = 262_144;

/// The longest packet of a pcap file that itself declares a longer snaplen, in bytes: libpcap's `INITIAL_MAX_BLOCKSIZE`
/// (sf-pcapng.c), so that both formats may hold the same packets.
pub const CAPTURE_PACKET_LENGTH_DECLARED: u32 = 16 * 1024 * 1024;

/// The longest pcapng block, in bytes: the longest packet and 128 KiB of options, as libpcap's `MAX_BLOCKSIZE_FOR_SNAPLEN`.
pub const CAPTURE_BLOCK_LENGTH: u32 = CAPTURE_PACKET_LENGTH_DECLARED + 128 * 1024;

/// The latest time of a packet, nanoseconds since the epoch: 2^62 - 1, in 2116. The earliest is 0. Between them no difference of
/// two times overflows, nor the sum of a time and a difference.
pub const LATEST_TIME: i64 = 4_611_686_018_427_387_903;

/// How far to search for the next record after a damaged one, in bytes: covers a lost write-back of the page cache, and ends in
/// a fraction of a second.
pub const CAPTURE_RESYNC_DISTANCE: u64 = 64 * 1024 * 1024;

/// Consecutive plausible record headers that prove a place to continue: one header is 16 bytes that packet data may imitate by
/// chance, three in a chain it does not.
pub const CAPTURE_RESYNC_RECORDS: u32 = 3;

/// The longest record believed during that search, in bytes: what tcpdump records, so that a false length cannot fill the memory.
pub const CAPTURE_RESYNC_RECORD_LENGTH: u32 = CAPTURE_PACKET_LENGTH + 64 * 1024;

/// How far neighbouring records' times may lie apart before a record's header is doubted, in seconds: one day.
pub const CAPTURE_TIME_JUMP_SECONDS: u32 = 86_400;

/// How far before the latest packet a packet is put into the order of times, nanoseconds: 20 ms. Capture points that buffer
/// packets by queue or interface hand them over within some milliseconds (heuristic).
pub const SORTED_NS: i64 = 20_000_000;

/// Packets that wait meanwhile: 20 ms of 3 million a second.
pub const SORTED_PACKETS: usize = 65_536;

/// Bytes of them: 20 ms of 25 Gbit/s.
pub const SORTED_BYTES: usize = 64 * 1024 * 1024;

/// Packets with data of one direction of a connection, the last ones, of which it is looked whether a late packet acknowledges
/// them.
pub const SORTED_DATA: usize = 256;

/// Packets with another place than in the file whose numbers are kept, 4 bytes each; those behind them are not sorted.
pub const SORTED_NUMBERS: usize = 1 << 25;

/// Damage entries kept; the rest are counted: a report shows a few, a ruined file has millions.
pub const CAPTURE_DAMAGE_ENTRIES: usize = 100;

/// Interfaces kept over all files: a day of rotated files from a host with many; a hostile file declares one every 20 bytes.
pub const CAPTURE_INTERFACES: usize = 65_536;

/// Bytes of an interface's name kept: Linux allows 15 (`IFNAMSIZ`), Windows device names have about 50.
pub const CAPTURE_INTERFACE_NAME: usize = 256;

/// Comments kept over all files: a report shows them to a reader.
pub const CAPTURE_COMMENTS: usize = 256;

/// Bytes of a comment kept: as above; the format allows 65,535.
pub const CAPTURE_COMMENT_LENGTH: usize = 4096;

/// Bytes of decryption secrets kept over all files: a key log line has about 180 bytes and each TLS 1.3 connection some five
/// lines, which makes room for 18,000 connections.
pub const CAPTURE_SECRETS_LENGTH: usize = 16 * 1024 * 1024;

/// Decryption secrets blocks kept: bounds the cost of empty ones.
pub const CAPTURE_SECRETS_BLOCKS: usize = 4096;

/// The largest Zstandard window, in bytes: what `zstd -d` accepts unasked (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`, 27).
pub const CAPTURE_ZSTD_WINDOW: u64 = 1 << 27;

/// How many times longer than the compressed file its bytes may be: above the most that gzip (1,032) and lz4 (255) reach.
/// Only Zstandard can do more, some 30,000 times, which no packets compress by.
pub const CAPTURE_EXPANSION: u64 = 1_100;

/// Bytes that a compressed file may have in any case: short files of many like packets compress best.
pub const CAPTURE_EXPANSION_FREE: u64 = 64 * 1024 * 1024;

// --- Packets ---

/// VLAN tags skipped in one Ethernet frame. Provider bridges stack two (IEEE 802.1ad); the rest is slack.
pub const MAX_VLAN_TAGS: usize = 4;

/// MPLS labels skipped in one packet. Backbones rarely push more than five.
pub const MAX_MPLS_LABELS: usize = 8;

/// IPv6 extension headers skipped in one packet. RFC 8200 section 4.1 lists seven in its recommended order.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Tunnels entered in one packet, so that nested headers cannot exhaust the stack. Overlay inside overlay makes two.
pub const MAX_TUNNELS: u8 = 4;

/// Fragmented datagrams waiting at once; they are looked up one by one, so this also bounds the time per fragment.
pub const MAX_FRAGMENTED_DATAGRAMS: usize = 256;

/// Bytes held by waiting fragments: the default of Linux's `net.ipv4.ipfrag_high_thresh` (`net/ipv4/ip_fragment.c`).
pub const MAX_FRAGMENT_BYTES: usize = 4 << 20;

/// Separate byte ranges in one waiting datagram. Ordinary reordering leaves a few; hundreds are an attack.
pub const MAX_FRAGMENT_RANGES: usize = 64;

/// Age in nanoseconds of capture time at which a waiting datagram is given up: Linux's `IP_FRAG_TIME`, 30 s
/// (`include/net/ip.h`); IPv6 allows 60 s (RFC 8200 section 4.5), which no sender depends on.
pub const FRAGMENT_TIMEOUT_NS: i64 = 30_000_000_000;

/// DNS questions that are listed, some 400 bytes each; the rest are counted.
pub const LOOKUPS: usize = 4_096;
/// Records read of a DNS answer: one of 512 bytes (RFC 1035 section 4.2.1) has 28 addresses.
pub const DNS_RECORDS: usize = 32;
/// Addresses kept of a DNS answer: clients try a few of them, one after the other.
pub const DNS_ADDRESSES: usize = 8;
/// ICMP errors that are listed, some 220 bytes each: routers send few (RFC 1812 section 4.3.2.8), equal ones have one row.
pub const ICMP_ERRORS: usize = 4_096;

// --- TCP ---

/// Bytes kept out of order per direction while a hole waits to be filled; above Linux's largest default receive
/// buffer (`net.ipv4.tcp_rmem` 6 MiB), so that an honest sender never reaches it.
pub const OUT_OF_ORDER_BYTES: usize = 8 << 20;
/// Segments kept out of order per direction; 8 MiB in segments of 512 bytes.
pub const OUT_OF_ORDER_SEGMENTS: usize = 16_384;
/// Kept segments that one longer segment is compared with; honest senders repeat one or two at a time.
pub const OUT_OF_ORDER_STEPS: usize = 16;
/// Out-of-order bytes kept over all connections of one thread: eight senders with all that one may have.
pub const OUT_OF_ORDER_TOTAL: usize = 64 << 20;
/// Packets of a connection that must follow the ACK of an unseen byte before the byte counts as missing from the
/// capture: capture points with several queues record an ACK before its data.
pub const MISSING_AFTER_PACKETS: u32 = 64;
/// Fewer that must follow it where [`MISSING_AFTER_NS`] passes meanwhile.
pub const MISSING_AFTER_LATE_PACKETS: u32 = 16;
/// Capture points mix the order of packets by milliseconds: 100 ms. The capture's clock may step meanwhile, so that time alone
/// shows nothing.
pub const MISSING_AFTER_NS: i64 = 100_000_000;
/// Bytes that an ACK may be ahead of the capture for its packet to be kept until they come: what a mixed order of
/// directions explains. Further ahead the bytes are missing, or the ACK is absurd.
pub const MIXED_BYTES: i64 = 1 << 20;
/// Fingerprints of recent packets kept per direction to recognise a packet recorded twice.
pub const RECENT_PACKETS: usize = 32;
/// Rows of RPCs that are open at the capture's end.
pub const OPEN_RPCS: usize = 10_000;
/// Request messages remembered per connection whose client is often idle, to see whether they come at intervals: four for
/// each of 64 callers.
pub const RECENT_REQUESTS: usize = 256;
/// Rows of the stalls table.
pub const STALLS: usize = 100_000;
/// Of them, those of one connection: enough for their pattern.
pub const CONNECTION_STALLS: u32 = 256;
/// ACKs remembered per direction to find the one that released a sender.
pub const RECENT_ACKS: usize = 32;
/// Data packets remembered per direction, to count the segments in flight: more than initial and restarted windows.
pub const RECENT_SENT: usize = 32;
/// Retransmissions of one sender that may turn out needless by an ACK, or when its peer says so (D-SACK, RFC 2883); later
/// ones count as needed.
pub const RETRANSMISSIONS_KEPT: usize = 1_024;
/// Intervals remembered in which a sender with a queue was held up: more than the rounds of a slow start. Of more, the oldest
/// become one.
pub const HELD_INTERVALS: usize = 8;
/// Resendings remembered per direction until the bytes behind them are answered.
pub const RESENT: usize = 8;
/// Connections told apart in one run; what is left of a closed connection takes some 300 bytes until its rows are made, 1.6 kB.
pub const CONNECTIONS: usize = 1 << 20;
/// Packets between two looks at the memory taken, when it is limited.
pub const MEMORY_PACKETS: u32 = 1_000;
/// Bytes that packets between two such looks may need: one in a hundred begins a connection, most tables double.
pub const MEMORY_MARGIN: u64 = 16 << 20;
/// Bytes that a connection takes while it receives packets, at most but for the streams that are open on it.
pub const MEMORY_PER_OPEN_CONNECTION: u64 = 20_000;
/// Bytes that a connection's rows take at the end, in the tables and in reports.
pub const MEMORY_PER_CONNECTION: u64 = 2_000;
/// Of them, connections that carried no payload; further ones are counted, and get a row with their first payload. As many
/// as an open proxy or a busy gateway keeps idle; some 1,500 bytes each.
pub const BARE_CONNECTIONS: usize = 16_384;
/// Connections without payload beyond those that are remembered, the last ones, some 400 bytes each: at 100,000 SYNs a
/// second their payload has a third of a second to come.
pub const BARE_UNLISTED: usize = 32_768;
/// Time without a packet after which a live run forgets a connection, nanoseconds: 2 hours, after which TCP's keep-alive asks
/// whether the peer is there, 9 times 75 s for its answer (RFC 9293 section 3.8.4, Linux `net.ipv4.tcp_keepalive_time`, `_probes`
/// and `_intvl`), and 125 s more.
pub const LIVE_IDLE: i64 = 8_000_000_000_000;
/// Bytes that the pieces of a live run take together, but for the last one: the oldest are dropped for it. A window takes as much
/// again while it is shown.
pub const LIVE_BYTES: usize = 256 << 20;
/// Packets that a live run numbers before it begins anew, as with another capture: 6 hours at 200,000 packets a second.
pub const LIVE_PACKETS: u32 = 4_294_967_294;
/// Time for which a live run waits for the answer to a DNS question, nanoseconds: 30 s, the longest timeout of resolv.conf(5).
pub const LIVE_QUESTION: i64 = 30_000_000_000;
/// Time for which a live run waits for late packets of a connection that is over, nanoseconds: 1 s, RFC 6298's first
/// retransmission timeout. Those that come still later are counted, up to the cut after the next one.
pub const LIVE_LINGER: i64 = 1_000_000_000;
/// Segments without payload kept of such a connection: Linux sends seven SYNs (`net.ipv4.tcp_syn_retries`) and six
/// SYN-ACKs (`net.ipv4.tcp_synack_retries`). Behind them it is followed as one with payload, if it has a row.
pub const OPENING_SEGMENTS: usize = 16;
/// Ends known to listen: they show which side is the client of a connection begun before the capture.
pub const LISTENING_ENDS: usize = 65_536;
/// Connections followed at once by one thread, some 16 kB each; as many as a busy server has. Beyond, those idle longest
/// are put away as if they were over.
pub const OPEN_CONNECTIONS: usize = 32_768;
/// Open connections of one thread that are not packed, however long they have been silent.
pub const AWAKE_CONNECTIONS: usize = 1_024;
/// Packets of the capture after which a connection without any is packed, to some 2 kB. Connections that take turns are not
/// packed.
pub const SILENT_PACKETS: u32 = 1 << 16;
/// Connections of which the one idle longest is put away; one that carried nothing goes first.
pub const OPEN_CONNECTIONS_TRIED: usize = 32;

// --- HPACK ---

/// Header blocks after a gap that are asked how many table entries the gap inserted, before that is given up.
pub const HPACK_REALIGN_BLOCKS: u32 = 64;
/// Entries that a gap may have inserted for its blocks to be asked: 4,096 bytes, the usual size of a table, hold 128.
pub const HPACK_REALIGN_ENTRIES: u32 = 256;
/// Fields of such a block at most: a gRPC request has some ten.
pub const HPACK_REALIGN_FIELDS: usize = 64;
/// Longest integer of HPACK, in octets after the prefix: five carry 32 bits, more than any table or
/// block needs (RFC 7541 5.1).
pub const HPACK_MAX_INTEGER_OCTETS: usize = 5;

/// Largest dynamic table kept per decoder, in bytes of RFC 7541 4.1. 64 KiB is the largest setting
/// browsers send (gRPC's is 4,096); a peer may be granted more, and then only entries older than
/// these 64 KiB become unknown.
pub const HPACK_MAX_TABLE_BYTES: u32 = 64 * 1024;

/// Table kept when neither the size nor the setting was captured, in bytes: four times the default
/// of RFC 9113 6.5.2, in case SETTINGS before the capture raised it. Keeping too much is harmless,
/// for indices count from the newest entry.
pub const HPACK_LATE_TABLE_BYTES: u32 = 16 * 1024;

/// Largest header list handed on per block, in bytes of RFC 9113 6.5.2. One octet can stand for a
/// field of 4 kB, so what follows is counted and kept from the caller; gRPC peers accept 8 KiB to
/// 16 KiB by default.
pub const HPACK_MAX_LIST_BYTES: u64 = 1024 * 1024;

/// Longest field name kept, in octets as encoded. An insertion may copy a name by a reference of
/// one octet, so that this is also the most one octet of a block can make the decoder copy.
pub const HPACK_MAX_NAME_BYTES: usize = 1024;

/// Longest field value kept, in octets as encoded (Huffman coding shrinks by 8/5 at most); gRPC's
/// largest are status details, a few KiB. A longer value is measured, and reported as unknown.
pub const HPACK_MAX_VALUE_BYTES: usize = 64 * 1024;

/// Scratch memory a decoder keeps between blocks, per buffer and in bytes, lest one long string
/// cost memory for good.
pub const HPACK_RETAINED_SCRATCH_BYTES: usize = 4 * 1024;

// --- HTTP/2 ---

/// Bytes of one header block over HEADERS and all its CONTINUATION frames (CONTINUATION flood, CVE-2024-27316).
pub const HEADER_BLOCK: usize = 1 << 20;
/// Bytes kept of a control frame that is cut over segments; the longest control frame decoded whole.
pub const CONTROL_FRAME: usize = 64 << 10;
/// Packets after a pause that are kept until both hosts' timestamps say whether time passed: the answer and its ACK are among
/// the first ones, unless thousands of connections take turns.
pub const PACKETS_AFTER_PAUSE: usize = 64;
/// Steps of the capture's clock that are listed; the rest are corrected and counted.
pub const CLOCK_STEPS: usize = 100;
/// WINDOW_UPDATE frames of one side that may be on their way to a sender far from the capture point; with more, its
/// windows are taken as captured.
pub const RECENT_CREDITS: usize = 256;
/// Streams open at once on one connection, some 400 bytes each; HTTP/2 servers allow 100 to a few thousand.
pub const OPEN_STREAMS: usize = 65_536;
/// Streams opened before the capture that are looked at, on one connection; servers allow 100 to a few thousand.
pub const LATE_STREAMS: usize = 4_096;
/// Methods of one connection whose names were sent before the capture and that are told apart: as many entries as an
/// HPACK table of the default size holds.
pub const METHOD_LABELS: usize = 128;
/// The same of all connections: a small part of the names that are told apart.
pub const METHOD_LABELS_TOTAL: u32 = 1_024;
/// SETTINGS frames of one side that await their acknowledgement.
pub const PENDING_SETTINGS: usize = 128;
/// Bytes searched for the next frame boundary at a time after a gap or a late begin.
pub const RESYNC_BUFFER: usize = 128 << 10;
/// Stream identifiers above the highest seen that are believed when the next frame boundary is searched after a gap:
/// two for each request that a gap of that length swallows.
pub const RESYNC_STREAMS: u32 = 1 << 14;
/// Bytes of one direction searched without result before it is taken for another protocol.
pub const RESYNC_GIVE_UP: u64 = 16 << 20;
/// Bytes of an HTTP/1.1 head, or of a line in a chunked body, that are read.
pub const HTTP1_HEAD: usize = 16 << 10;
/// Requests of an HTTP/1.1 connection whose responses are awaited; browsers and proxies send one at a time.
pub const HTTP1_REQUESTS: usize = 64;

// --- TLS ---

/// Connections whose secrets are kept from key logs, about 300 bytes each; further ones are counted and not decrypted.
pub const TLS_KEY_LOG_CONNECTIONS: usize = 262_144;
/// Bytes of a key log's line that may mean something: the longest label (31), a random (64) and a secret of SHA-384 (96)
/// with two spaces make 193; a longer line is damaged.
pub const TLS_KEY_LOG_LINE: usize = 1024;
/// Bytes of a TLS 1.2 record after its header (RFC 5246 section 6.2.3: 2^14 + 2048). TLS 1.3 allows 2^14 + 256
/// (RFC 8446 section 5.2), which is asked of once the version is known.
pub const TLS_RECORD_LENGTH: usize = (1 << 14) + 2048;
/// Bytes of a TLS 1.3 record after its header (RFC 8446 section 5.2).
pub const TLS13_RECORD_LENGTH: usize = (1 << 14) + 256;
/// Bytes of a hello message that are kept to be read; one with post-quantum key shares and many tickets has some 5 kB.
pub const TLS_HELLO_LENGTH: usize = 64 << 10;
/// Bytes of the protocol names offered by ALPN that are kept; gRPC clients offer one or two, of a few bytes each.
pub const TLS_ALPN_OFFERS: usize = 512;
/// Bytes of one side held back until the other side's hello has come: captures with several queues mix the order of
/// directions by a window's worth of packets, and early data (RFC 8446 section 2.3) waits here too.
pub const TLS_HELD_BYTES: usize = 128 << 10;
/// Pieces (packets) held back or searched per direction; more are joined and take the position of the last.
pub const TLS_HELD_PIECES: usize = 4096;
/// Consecutive record headers that prove a record boundary after a gap, the lengths of two records linking them.
pub const TLS_RESYNC_HEADERS: usize = 3;
/// Bytes looked at in one step of that search, which bounds what it keeps: this and two records of the longest kind.
pub const TLS_RESYNC_STEP: usize = 32 << 10;
/// Sequence numbers tried for the first record after a gap: records that one gap may have swallowed. 2^10 records of
/// the shortest gRPC message fill a socket's buffer.
pub const TLS_SEQUENCE_STEPS: u64 = 1024;
/// Records on which keys are tried while the handshake's end cannot be seen; a handshake flight has ten at most, and
/// half of certificates' chains in one-kilobyte records still fits.
pub const TLS_TRIAL_RECORDS: u32 = 64;
/// Bytes that all those attempts of one worker may authenticate over: about a second of work.
pub const TLS_ATTEMPT_BYTES: u64 = 1 << 30;
/// Bytes that one attempt counts for besides those of the record: its fixed cost is that of some hundred bytes.
pub const TLS_ATTEMPT_COST: u64 = 256;
/// Consecutive records that do not authenticate before a direction's keys are taken to be wrong.
pub const TLS_OPEN_FAILURES: u32 = 8;
/// Record buffers in use by the connections of one worker; each holds a record cut over packets, 16 kB as a rule.
pub const TLS_BUFFERS: usize = 16_384;
/// Idle record buffers kept for reuse by one worker.
pub const TLS_SPARE_BUFFERS: usize = 64;

// --- Scrubbing ---

/// Bytes of structure (frame headers, header blocks, message prefixes) kept between the two passes of `scrub`, with what it
/// takes to find them: some 20 million RPCs. A longer capture is refused.
pub const SCRUB_STRUCTURE_BYTES: usize = 2 << 30;
/// Distinct texts and addresses whose replacements are remembered; further ones are computed anew each time.
pub const SCRUB_REMEMBERED: usize = 262_144;
/// Attempts to find a replacement of a method that no other method has.
pub const SCRUB_ATTEMPTS: u32 = 256;
/// Packets held back while the rest of a fragmented datagram is awaited.
pub const SCRUB_HELD_PACKETS: usize = 4_096;
/// Bytes of them.
pub const SCRUB_HELD_BYTES: usize = 16 << 20;
/// Bytes of written capture handed over at a time.
pub const SCRUB_OUTPUT: usize = 1 << 20;

// --- Tables ---

/// Rows looked through for those of a connection whose client turns out to be the other side. Roles show within the
/// first packets with payload; each connection turns once.
pub const TURNED_ROWS: usize = 4096;

/// Distinct strings of one kind (methods, agents) that are told apart, some 4 kB each in a report; further ones share one name.
/// The API of a whole cloud has some thousand methods.
pub const INTERNED_STRINGS: usize = 8_192;
/// Methods whose turnaround has a histogram (about 100 kB each); further methods have none.
pub const METHOD_HISTOGRAMS: usize = 512;
/// Bytes of one interned string; longer ones are cut.
pub const INTERNED_BYTES: usize = 1_024;
/// Bytes of all strings of one kind; beyond, new ones share one name.
pub const INTERNED_TOTAL: usize = 4 << 20;
/// Rows that a table keeps beyond its bound until the run is over: segments of many connections are buffered, some 120,000
/// at a time, and read connection by connection, so that which rows are the first ones shows only then.
pub const ROWS_AHEAD: usize = 131_072;
/// Rows of the problems table; further problems are counted only.
pub const PROBLEMS: usize = 10_000;
/// Rows of the pings table.
pub const PINGS: usize = 65_536;
/// Rows of the goaways table.
pub const GOAWAYS: usize = 65_536;
/// Distinct debug texts of GOAWAY frames that are kept.
pub const GOAWAY_REASONS: usize = 256;
/// Rows of the delays table.
pub const DELAYS: usize = 100_000;
/// Rows of the table of HTTP/2 requests that are no RPCs; further ones are counted only.
pub const OTHER_REQUESTS: usize = 100_000;
/// Rows of the queues table.
pub const QUEUES: usize = 100_000;
/// RPCs of each connection, its first ones, whose rows are kept as examples.
pub const FIRST_RPCS: u32 = 32;
/// Connections, the first ones, of which so many are kept; some 20 MB of rows.
pub const CONNECTIONS_OF_FIRST_RPCS: u32 = 8_192;
/// RPCs of each further connection, its first ones, whose rows are kept as examples.
pub const FIRST_RPCS_OF_FURTHER: u32 = 4;
/// Retries of each connection, its first ones, whose rows are kept as examples, and as many RPCs that are open when they begin.
pub const RETRIES: u32 = 4_096;
/// RPCs of each method, its longest ones, whose rows are kept as examples.
pub const SLOWEST_RPCS: usize = 8;
/// Streams of a connection whose body is read for the RPC's end at once: twice the usual limit of concurrent streams, and
/// more with short ends.
pub const TAILS: usize = 1_024;

/// Bytes kept of such an end: trailers and errors without their details.
pub const TAIL_BYTES: usize = 4_096;

/// Bytes of all such ends that one worker keeps at once; an RPC whose end finds no room has no status.
pub const TAILS_TOTAL: usize = 16 << 20;

/// Rows of the failures table.
pub const FAILURES: usize = 100_000;
/// Rows of the repeats table.
pub const REPEATS: usize = 100_000;
/// RPCs of a connection that may be repeated, some 80 octets each: as many fail within a second.
pub const REPEATS_OPEN: usize = 256;
/// Complete responses of a connection that their clients may not have read, some 60 octets each: as many may be on the way.
pub const UNREAD_RESPONSES: usize = 256;
/// RPCs of a connection that are over and whose clients have not acknowledged the response, some 400 octets each.
pub const UNACKNOWLEDGED_RESPONSES: usize = 32;
/// Streams with an unfinished message that one wait is charged to; further ones keep the time as unexplained.
pub const STREAMS_PER_WAIT: usize = 256;
/// Places of open streams searched for them: a wait costs a microsecond, however many streams are open.
pub const STREAMS_SEARCHED_PER_WAIT: usize = 4_096;

// --- Process records ---

/// Lines read of the description of a trace event: the largest have some thirty fields.
pub const TRACE_FORMAT_LINES: usize = 256;
/// Bytes of a trace event: one never spans pages, which are 4 KiB, or 64 KiB on some machines.
pub const TRACE_EVENT_BYTES: usize = 65_536;
/// Bytes of pages in one compressed block of a process record; the recorder drains 8 MiB per processor at a time.
pub const TRACE_BLOCK: usize = 64 << 20;
/// Bytes of all pages of a process record, decompressed: `TRACE_EVENTS` of 64 bytes.
pub const TRACE_BYTES: usize = 1 << 30;
/// Times of a process record end here, 146 years after the host's start: their differences do not overflow.
pub const TRACE_TIME: u64 = 1 << 62;
/// Events of a process record that are kept, 32 bytes each: a minute of a busy benchmark.
pub const TRACE_EVENTS: usize = 16_000_000;
/// Sockets of a process record that are told apart.
pub const TRACE_SOCKETS: usize = 65_536;
/// Threads of a process record that are told apart.
pub const TRACE_THREADS: usize = 65_536;
/// Wake-ups followed back from one send: each goes back in time, and few chains have more than ten.
pub const TRACE_WAKE_UPS: usize = 256;
/// Intervals in which a host had to act that are kept for a process record, 40 bytes each; further ones are counted, and the
/// record is not used then.
pub const ACTS: usize = 2_000_000;
