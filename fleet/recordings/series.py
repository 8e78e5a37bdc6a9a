"""Group files into recordings: the files of one tcpdump or dumpcap, of one interface of one host.

Host and interface come from names, because a capture file may not contain them: `web-17_eth0_20260701-100000.pcap3`,
`web-17/eth0.pcap00`, `host=web-17/2026-07-01/10/any.pcap.zst`. Users describe other layouts by a regular expression.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct

from ...analyzer.sidecar.names import descriptions, is_sidecar_file, samples
from .credentials import without_credentials

_COMPRESSED = re.compile(r"\.(gz|zst|lz4)$", re.IGNORECASE)
_CAPTURE = re.compile(r"^(?P<stem>.*)\.(?:pcapng|pcap|cap|dmp|dump)(?:\.?(?P<sequence>\d{1,9}))?$", re.IGNORECASE)
"""tcpdump -C appends a number to the name, padded with zeros with -W."""
_DUMPCAP = re.compile(r"^(?P<stem>.*)_(?P<sequence>\d{5,9})_(?P<time>(?:19|20)\d{12})$")
"""dumpcap -b appends a number and a time to the stem of the name."""
_TIME = re.compile(
    r"(?<!\d)(?:(?:19|20)\d{2}([-_.]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T_.-]?(?:[01]\d|2[0-3])(?:[-_:.h]?[0-5]\d){0,2}(?:Z|[+-]\d{4})?)?|1\d{9})(?!\d)"
)
"""tcpdump -G formats the name with strftime: a date, perhaps with time of day, or seconds since 1970."""
_INTERFACE = re.compile(
    r"(?:any|lo\d*|(?:eth|bond|team|br|tun|tap|veth|wlan|ib|ens|eno|vmnet|docker|cni|virbr)\d+|en[ospx]\w*\d\w*"
    r"|(?:cali|veth|br-)[0-9a-f]{6,})(?:\.\d+)?"
)
"""Names that Linux gives to interfaces."""
_TOKENS = re.compile(r"[^_@+\s-]+(?:-[0-9a-f]{6,}(?![\w]))?")
_OF_TIME = re.compile(r"\d{1,4}|(?:date|dt|day|hour|year|month|time)=.*", re.IGNORECASE)
_NAMED = re.compile(r"(?P<what>host|interface)=(?P<value>.+)", re.IGNORECASE)
# fmt: off
_GENERIC = frozenset((
    "capture", "captures", "pcap", "pcaps", "dump", "dumps", "tcpdump", "dumpcap", "traffic", "packets", "logs", "data",
    "grpc", "run",
))
# fmt: on
"""Names of folders and files that are not host names."""


_LOCAL = "file://"


class File(Struct, frozen=True):
    """A capture file of a store."""

    url: str
    size: int
    version: str
    """The store's mark of the contents (ETag, or time of change); it differs if they changed."""

    @property
    def named(self) -> str:
        """Return the URL without credentials, to be shown and stored."""
        return self.url if self.url.startswith(_LOCAL) else without_credentials(self.url)

    def __repr__(self) -> str:
        """Name the object for the logs of engines."""
        return f"File({self.named!r})"


class Found(Struct, frozen=True):
    """A file, and the place where it was found."""

    file: File
    folder: tuple[str, ...]
    """Folders between the source and the file."""
    name: str
    root: str
    """The folder that was searched."""


class Recording(Struct, frozen=True):
    """Files that are read as one capture."""

    id: str
    """Readable name, the same in every run."""
    host: str
    interface: str | None
    files: tuple[File, ...]
    """Capture files, ordered by the times and numbers in their names."""
    missing: tuple[int, ...] = ()
    """Missing numbers between the first and the last file."""
    sidecar: tuple[File, ...] = ()
    """Sidecar files of `grpcdiag capture`: the description, and perhaps socket samples."""

    @property
    def size(self) -> int:
        """Sum up the bytes of the capture files."""
        return sum(file.size for file in self.files)


class LayoutError(ValueError):
    """The layout is not a regular expression, or has no group `host`."""


def is_capture(name: str) -> bool:
    """Check by its name whether a file in a folder is a capture."""
    return _CAPTURE.match(_COMPRESSED.sub("", name)) is not None


def recordings(found: Iterable[Found], layout: str | None = None) -> tuple[Recording, ...]:
    """Group files into recordings, the largest first, because long tasks at the end leave workers idle.

    `layout` is a regular expression with the group `host`, and perhaps `interface`; it is searched in the path below
    the source. Raises LayoutError.
    """
    pattern = _compiled(layout) if layout else None
    every = {one.file.url: one for one in found}
    sidecar = {url: one.file for url, one in every.items() if is_sidecar_file(one.name)}
    parts = [_parts(one) for url, one in every.items() if url not in sidecar]
    shared = _prefixes_of_many_folders(parts)
    series: dict[tuple[str, str | None, str, str], list[_Parts]] = defaultdict(list)
    for part in parts:
        host, interface = _place(part, shared, pattern)
        series[host, interface, part.folder_key, part.stem].append(part)
    made = [_recording(key, pieces, sidecar) for key, pieces in series.items()]
    return tuple(sorted(made, key=lambda recording: (-recording.size, recording.id)))


class _Parts(Struct, frozen=True):
    """Parts of a file's path."""

    found: Found
    stem: str
    """The name without time and number; files of one series have the same."""
    time: str
    sequence: int | None
    prefix: str
    """The part of the name before the interface."""
    interface: str | None
    folder: str | None
    """The innermost folder that may be named after a host."""
    folder_key: str


def _parts(found: Found) -> _Parts:
    name = _COMPRESSED.sub("", found.name)
    capture = _CAPTURE.match(name)
    stem, number = (capture["stem"], capture["sequence"]) if capture else (name, None)
    time = ""
    if dumped := _DUMPCAP.match(stem):
        stem, number, time = dumped["stem"], dumped["sequence"], dumped["time"]
    elif matched := _TIME.search(stem):
        time = matched[0]
        stem = f"{stem[: matched.start()].rstrip('._-')}{stem[matched.end() :]}"
    interface, at = _interface(stem)
    kept = [part for part in found.folder if not (_OF_TIME.fullmatch(part) or _TIME.fullmatch(part))]
    places = [part for part in kept if part.lower() not in _GENERIC and not _INTERFACE.fullmatch(part)]
    of_folder = next((part for part in reversed(kept) if _INTERFACE.fullmatch(part)), None)
    when = "/".join(part for part in found.folder if part not in kept)
    return _Parts(
        found=found,
        stem=stem.strip("._-"),
        time=f"{when}/{time}",
        sequence=int(number) if number else None,
        prefix=stem[:at].strip("._-+@ ") if interface else "",
        interface=interface or of_folder,
        folder=places[-1] if places else None,
        folder_key="/".join((found.root, *kept)),
    )


def _interface(stem: str) -> tuple[str | None, int]:
    """Find the last interface in a name, and where it begins."""
    for match in reversed(list(_TOKENS.finditer(stem))):
        for candidate, begin in _cut(match):
            if _INTERFACE.fullmatch(candidate):
                return candidate, begin
    return None, 0


def _cut(match: re.Match[str]) -> Iterator[tuple[str, int]]:
    """Yield a part, and its rest after each dot: `eth0.100` is an interface, `web.example.eth0` ends in one."""
    text = match[0]
    yield text, match.start()
    for dot in (place for place, letter in enumerate(text) if letter == "."):
        yield text[dot + 1 :], match.start() + dot + 1


def _prefixes_of_many_folders(parts: Sequence[_Parts]) -> frozenset[str]:
    """Find prefixes of names that occur in the folders of several hosts: such a prefix is not a host name."""
    folders: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        if part.prefix and part.folder:
            folders[part.prefix].add(part.folder)
    return frozenset(prefix for prefix, inside in folders.items() if len(inside) > 1)


def _place(part: _Parts, shared: frozenset[str], layout: re.Pattern[str] | None) -> tuple[str, str | None]:
    """Find host and interface of a file."""
    if layout:
        match = layout.search("/".join((*part.found.folder, part.found.name)))
        if match and match["host"]:
            return match["host"], match.groupdict().get("interface") or part.interface
    named = {m["what"].lower(): m["value"] for f in part.found.folder if (m := _NAMED.fullmatch(f))}
    interface = named.get("interface", part.interface)
    if "host" in named:
        return named["host"], interface
    if part.prefix and part.prefix not in shared and part.prefix.lower() not in _GENERIC:
        return part.prefix, interface
    if part.folder:
        return part.folder, interface
    own = part.stem if part.interface is None and part.stem.lower() not in _GENERIC else ""
    return own or part.found.root.rstrip("/").rpartition("/")[2] or "unknown", interface


def _recording(
    key: tuple[str, str | None, str, str], pieces: Sequence[_Parts], sidecar: Mapping[str, File]
) -> Recording:
    ordered = sorted(pieces, key=lambda part: (part.time, part.sequence or 0, part.found.name))
    host, interface = key[:2]
    label = _slug(
        "-".join(dict.fromkeys(text for text in (host, interface or "", _rest(key[3], host, interface)) if text))
    )
    return Recording(
        id=f"{label[:80]}-{digest(repr(key))}",
        host=host,
        interface=interface,
        files=tuple(part.found.file for part in ordered),
        missing=_missing(ordered),
        sidecar=_beside([part.found.file.url for part in ordered], sidecar),
    )


def _beside(urls: Iterable[str], sidecar: Mapping[str, File]) -> tuple[File, ...]:
    """Find the sidecar of a recording: the only description of its files, with its samples; none if there are more."""
    found = {name for url in urls for name in descriptions(url) if name in sidecar}
    if len(found) != 1:
        return ()
    (description,) = found
    return tuple(sidecar[name] for name in (description, samples(description)) if name in sidecar)


def _rest(stem: str, host: str, interface: str | None) -> str:
    """Remove host and interface from a name."""
    for known in (host, interface or ""):
        stem = stem.replace(known, "", 1) if known else stem
    return stem.strip("._-+@ ")


_MOST_MISSING = 100


def _missing(ordered: Sequence[_Parts]) -> tuple[int, ...]:
    """List missing numbers; none if names have different times, because numbers may restart then."""
    numbers = [part.sequence for part in ordered if part.sequence is not None]
    if len({part.time for part in ordered}) > 1 or len(numbers) < 2 or max(numbers) - min(numbers) > 10**6:
        return ()
    there = set(numbers)
    return tuple(number for number in range(min(numbers), max(numbers)) if number not in there)[:_MOST_MISSING]


def digest(text: str) -> str:
    """Compute a hash of a text: ten hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=5).hexdigest()


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("._-") or "recording"


def _compiled(layout: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(layout)
    except re.error as error:
        raise LayoutError(f"the layout is not a regular expression: {error}") from None
    if "host" not in pattern.groupindex:
        raise LayoutError("the layout has no group (?P<host>...)")
    return pattern
