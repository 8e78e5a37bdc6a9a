"""SQL that joins the RPCs that two hosts recorded, and divides their time with both recordings.

Connections match by the initial sequence numbers of both sides, 64 bits that address translation (NAT) does not change.
If a recording lacks the handshake, they match by addresses, ports and overlapping sequence numbers, or by common packet
marks with any addresses. In all cases the RPCs must agree: the same streams with the same bytes. Captures are not read
again: the rows of RPCs have the times of first and last bytes, and the fastest of them give the clock offset.

The clock offset of two hosts is computed anew every five minutes: a drift of 100 parts per million changes it by at
most 30 ms in that time. Its uncertainty is half of the sum of the smallest delays in both directions.
"""

from __future__ import annotations

from ...analyzer.model.budget import CAUSES
from ...analyzer.model.thresholds import EQUAL_NUMBERS
from .sums import SLOT_NS

SPLIT_CAUSES = (*CAUSES, "network_up", "network_down")
"""Causes of a budget with both ends known; `network` is what could not be divided."""

_AGREE = 0.9
"""Least share of common streams with equal bytes (heuristic: an RPC that one recording has only in part does not
agree)."""
_DAY_NS = 86_400_000_000_000
_MOST = 4
"""Most connections that a connection without handshake is compared with by address."""

_CLOCKS_NS = 600_000_000_000
"""Largest difference of two hosts' clocks with which parts of their series are joined: 10 minutes (heuristic: without
such a bound, all parts of a connection of weeks would be compared with all others)."""
SERIES = "regexp_replace(recording, '\\.\\d+-\\d+$', '')"
"""SQL for the series of which a recording is a part."""

_RANK = "CASE vantage WHEN 'client' THEN 0 WHEN 'middle' THEN 1 WHEN 'server' THEN 2 ELSE 1 END"


def candidates(connections: str) -> str:
    """Make SQL for pairs of recorded connections that may be one: `a` is nearer to the client, and counts."""
    return f"""
        WITH c AS (
            SELECT recording, {SERIES} AS series, connection, client, server, complete, first_time_ns, last_time_ns,
                   vantage,
                   {_RANK} AS rank, row_number() OVER (ORDER BY {_RANK}, recording, connection) AS number,
                   client_sequence::BIGINT AS cs, server_sequence::BIGINT AS ss,
                   bytes_client::BIGINT AS bc, bytes_server::BIGINT AS bs, marks
            FROM {connections} WHERE rpcs > 0
        ), opened AS (
            -- pair one series' rows with all others of the connection, not all with all: bounds the work for repeated
            -- captures
            SELECT cs, ss, arg_min(series, number) AS series
            FROM c WHERE complete GROUP BY cs, ss HAVING count(DISTINCT series) > 1
        ), marked AS (
            SELECT number, unnest(marks) AS mark FROM c
        ), known AS (
            SELECT mark, min(number) AS nearest FROM marked GROUP BY mark HAVING min(number) <> max(number)
        ), shared AS (
            SELECT nearest, number FROM known JOIN marked USING (mark) WHERE number <> nearest
            GROUP BY ALL HAVING count(*) >= {EQUAL_NUMBERS}
        ), late AS (
            SELECT a.recording AS a_recording, a.connection AS a_connection, a.vantage AS a_vantage,
                   a.first_time_ns AS a_time_ns, b.*
            FROM c a JOIN c b ON a.client = b.client AND a.server = b.server
            WHERE NOT (a.complete AND b.complete) AND (a.rank, a.recording) < (b.rank, b.recording)
              AND a.series <> b.series
              AND {_overlap("a.cs", "b.cs", "a.bc", "b.bc")} AND {_overlap("a.ss", "b.ss", "a.bs", "b.bs")}
            QUALIFY row_number() OVER (PARTITION BY b.recording, b.connection ORDER BY a.rank, a.recording) <= {_MOST}
        ), pairs AS (
            SELECT a.recording AS a_recording, a.connection AS a_connection, a.vantage AS a_vantage,
                   a.first_time_ns AS a_time_ns, c.recording, c.connection, c.vantage, c.first_time_ns
            FROM opened o JOIN c a ON a.cs = o.cs AND a.ss = o.ss AND a.series = o.series
            JOIN c ON c.cs = o.cs AND c.ss = o.ss AND c.series <> o.series
            WHERE a.complete AND c.complete AND (
                (a.recording = a.series AND c.recording = c.series)
                OR (a.first_time_ns::HUGEINT - c.last_time_ns < {_CLOCKS_NS}
                    AND c.first_time_ns::HUGEINT - a.last_time_ns < {_CLOCKS_NS}))
            UNION
            SELECT a_recording, a_connection, a_vantage, a_time_ns, recording, connection, vantage, first_time_ns
            FROM late
            UNION
            SELECT a.recording, a.connection, a.vantage, a.first_time_ns, b.recording, b.connection, b.vantage,
                   b.first_time_ns
            FROM shared s JOIN c a ON a.number = s.nearest JOIN c b ON b.number = s.number
            WHERE a.series <> b.series
        )
        SELECT a_recording, a_connection, a_vantage,
               recording AS b_recording, connection AS b_connection, vantage AS b_vantage
        FROM pairs WHERE {_near("a_time_ns", "first_time_ns")}"""


def _near(time: str, other: str) -> str:
    """Make SQL that checks that two times are within a day, without overflow for those of hostile captures."""
    return f"abs({time}::HUGEINT - {other}) < {_DAY_NS}"


def _overlap(first: str, second: str, first_size: str, second_size: str) -> str:
    """Make SQL that checks whether ranges of sequence numbers overlap (RFC 9293 section 3.4: differences wrap)."""
    difference = f"((({second} - {first}) + 6442450944) % 4294967296 - 2147483648)"
    return f"({difference} <= {first_size} AND -({difference}) <= {second_size})"


def agreed(rpcs: str) -> str:
    """Make SQL for candidates whose RPCs agree: each row of `b` with the one row of `a` that is its other end.

    If the vantages do not show which recording is nearer to the client, it is the one in which RPCs take longer.
    """
    ends = ("recording", "connection", "vantage")
    mine = ", ".join(f"if(turned, b_{name}, a_{name}) AS a_{name}" for name in ends)
    other = ", ".join(f"if(turned, a_{name}, b_{name}) AS b_{name}" for name in ends)
    end = "if(turned, a_recording, b_recording), if(turned, a_connection, b_connection)"
    other_recording = "if(turned, b_recording, a_recording)"
    nearest = SERIES.replace("recording", other_recording)
    alike = f"({_RANK.replace('vantage', 'a_vantage')}) = ({_RANK.replace('vantage', 'b_vantage')})"
    return f"""
        SELECT {mine}, {other} FROM (SELECT *, shorter AND {alike} AS turned FROM (
            SELECT p.*, count(*) AS common,
                   count(*) FILTER (a.request_bytes = b.request_bytes AND a.response_bytes = b.response_bytes) AS same,
                   sum(a.duration_ns) < sum(b.duration_ns) AS shorter
            FROM candidates p
            JOIN {rpcs} a ON a.recording = p.a_recording AND a.connection = p.a_connection
            JOIN {rpcs} b ON b.recording = p.b_recording AND b.connection = p.b_connection AND b.stream = a.stream
            GROUP BY ALL
        ) WHERE same >= greatest(1, {_AGREE} * common))
        -- one other end: the series that has most in common, with all of its parts
        QUALIFY {nearest} = first_value({nearest}) OVER (PARTITION BY {end} ORDER BY same DESC, {other_recording})
            AND row_number() OVER (PARTITION BY {end}, {other_recording} ORDER BY same DESC) = 1"""


def counted_twice(rpcs: str) -> str:
    """Make SQL for the RPCs of `b` that are also in `a`, by the rows of `agreed` in the table `pairs`.

    If only `b` shows that an RPC is behind a proxy, it is the one of `a` that is left out.
    """
    return f"""
        SELECT DISTINCT if(turned, a_recording, b_recording) AS recording,
               if(turned, a_connection, b_connection) AS connection, stream
        FROM (
            SELECT p.*, b.stream, a.proxy IS NULL AND b.proxy IS NOT NULL AS turned
            FROM pairs p
            JOIN {rpcs} b ON b.recording = p.b_recording AND b.connection = p.b_connection
            JOIN {rpcs} a ON a.recording = p.a_recording AND a.connection = p.a_connection AND a.stream = b.stream)"""


def ends(rpcs: str, hosts: str) -> str:
    """Make SQL for RPCs that both ends recorded, with one-way delays and a budget from both recordings.

    It reads the rows of `agreed` from the table `pairs`; `hosts` has the columns recording and host.
    """
    own = ", ".join(f"a.budget.{cause} AS {cause}" for cause in CAUSES)
    kept = [cause for cause in CAUSES if cause not in ("network", "server")]
    budget = ", ".join(f"'{cause}': {cause}" for cause in kept)
    return f"""
        WITH met AS (
            SELECT p.*, a.stream, a.method, a.start_time_ns, a.duration_ns, b.duration_ns AS server_duration_ns,
                   a.request_messages <= 1 AND a.response_messages <= 1 AS one_turn,
                   b.start_time_ns - a.start_time_ns AS up, {own},
                   a.start_time_ns - b.start_time_ns + (a.duration_ns - b.duration_ns) AS down,
                   b.budget.server + if(b_vantage = 'server', b.budget.network, 0) AS at_server
            FROM pairs p
            JOIN {rpcs} a ON a.recording = p.a_recording AND a.connection = p.a_connection
            JOIN {rpcs} b ON b.recording = p.b_recording AND b.connection = p.b_connection AND b.stream = a.stream
            WHERE a.complete AND b.complete AND a.request_bytes = b.request_bytes
              AND a.response_bytes = b.response_bytes AND NOT a.touches_gap AND NOT b.touches_gap
              AND {_near("a.start_time_ns", "b.start_time_ns")} AND greatest(a.duration_ns, b.duration_ns) < {1 << 62}
        ), clocked AS (
            SELECT *, (min(up) OVER slot - min(down) OVER slot) // 2 AS clock_offset_ns,
                   (min(up) OVER slot + min(down) OVER slot) // 2 AS clock_uncertainty_ns
            FROM met WINDOW slot AS (PARTITION BY a_recording, b_recording, start_time_ns // {SLOT_NS})
        ), ways AS (
            SELECT *, up - clock_offset_ns AS up_ns, down + clock_offset_ns AS down_ns,
                   network + server - at_server AS way
            FROM clocked WHERE clock_uncertainty_ns >= 0
        ), divided AS (
            SELECT *, way >= 0 AND at_server >= 0 AS known,
                   way >= 0 AND at_server >= 0 AND one_turn AND up_ns BETWEEN 0 AND way AND down_ns >= 0 AS split
            FROM ways
        )
        SELECT c.host AS client_host, a_recording AS recording, a_connection AS connection, stream, method,
               start_time_ns, duration_ns, s.host AS server_host, b_recording AS server_recording,
               b_connection AS server_connection, server_duration_ns, up_ns, down_ns,
               clock_offset_ns, clock_uncertainty_ns,
               {{{budget}, 'server': if(known, at_server, server),
                 'network': if(split, 0, if(known, way, network)),
                 'network_up': if(split, up_ns, 0), 'network_down': if(split, way - up_ns, 0)}} AS budget
        FROM divided JOIN {hosts} c ON c.recording = a_recording JOIN {hosts} s ON s.recording = b_recording
        ORDER BY a_recording, a_connection, start_time_ns, stream"""
