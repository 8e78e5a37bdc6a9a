"""Which files belong together: what one tcpdump or dumpcap wrote is one recording, of one interface of one host.

Host and interface come from names, because a capture file does not contain them: `web-17_eth0_20260701-100000.pcap3`,
`web-17/eth0.pcap00`, `host=web-17/2026-07-01/10/any.pcap.zst`. A layout of one's own is given as a regular expression.
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
"""tcpdump -C puts a number behind the name it was given, padded with -W."""
_DUMPCAP = re.compile(r"^(?P<stem>.*)_(?P<sequence>\d{5,9})_(?P<time>(?:19|20)\d{12})$")
"""dumpcap -b puts a number and a time into the name."""
_TIME = re.compile(
    r"(?<!\d)(?:(?:19|20)\d{2}([-_.]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T_.-]?(?:[01]\d|2[0-3])(?:[-_:.h]?[0-5]\d){0,2}(?:Z|[+-]\d{4})?)?|1\d{9})(?!\d)"
)
"""tcpdump -G lets strftime write the name: a date, perhaps with time of day, or seconds since 1970."""
_INTERFACE = re.compile(
    r"(?:any|lo\d*|(?:eth|bond|team|br|tun|tap|veth|wlan|ib|ens|eno|vmnet|docker|cni|virbr)\d+|en[ospx]\w*\d\w*"
    r"|(?:cali|veth|br-)[0-9a-f]{6,})(?:\.\d+)?"
)
"""Names that Linux gives to interfaces."""
_TOKENS = re.compile(r"[^_@+\s-]+(?:-[0-9a-f]{6,}(?![\w]))?")
_OF_TIME = re.compile(r"\d{1,4}|(?:date|dt|day|hour|year|month|time)=.*", re.IGNORECASE)
_NAMED = re.compile(r"(?P<what>host|interface)=(?P<value>.+)", re.IGNORECASE)
_GENERIC = frozenset(
    {
        "capture",
        "captures",
        "pcap",
        "pcaps",
        "dump",
        "dumps",
        "tcpdump",
        "dumpcap",
        "traffic",
        "packets",
        "logs",
        "data",
        "grpc",
        "run",
    }
)
"""Names of folders and files that are no host's."""


_LOCAL = "file://"


class File(Struct, frozen=True):
    """A capture file of a store."""

    url: str
    size: int
    version: str
    """What the store says of its contents (ETag, time of change): another version is another file."""

    @property
    def named(self) -> str:
        """The URL as it may be shown and stored."""
        return self.url if self.url.startswith(_LOCAL) else without_credentials(self.url)

    def __repr__(self) -> str:
        """Name the object for the logs of engines."""
        return f"File({self.named!r})"


class Found(Struct, frozen=True):
    """A file with where it was looked for."""

    file: File
    folder: tuple[str, ...]
    """Folders between the source that was named and the file."""
    name: str
    root: str
    """The folder that was searched."""


class Recording(Struct, frozen=True):
    """Files that are read as one capture."""

    id: str
    """Readable, and the same in every run."""
    host: str
    interface: str | None
    files: tuple[File, ...]
    """In the order of their names' times and numbers."""
    missing: tuple[int, ...] = ()
    """Numbers between the first and the last file of which there is none."""
    sidecar: tuple[File, ...] = ()
    """What `grpcdiag capture` wrote beside it: the description, and perhaps the samples of sockets."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class LayoutError(ValueError):
    """The regular expression of a layout is none, or names no host."""


def is_capture(name: str) -> bool:
    """Whether a file of a folder is taken for a capture, by its name."""
    return _CAPTURE.match(_COMPRESSED.sub("", name)) is not None


def recordings(found: Iterable[Found], layout: str | None = None) -> tuple[Recording, ...]:
    """Files put together to recordings, those with the most bytes first: long tasks at the end leave workers idle.

    `layout` is a regular expression with the groups `host` and perhaps `interface` that is searched in the path below
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
    """What a file's name says."""

    found: Found
    stem: str
    """The name without time and number: equal for files of one series."""
    time: str
    sequence: int | None
    prefix: str
    """What stands before the interface."""
    interface: str | None
    folder: str | None
    """The nearest folder that may be a host's."""
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
    """The last part of a name that is an interface's, and where it begins."""
    for match in reversed(list(_TOKENS.finditer(stem))):
        for candidate, begin in _cut(match):
            if _INTERFACE.fullmatch(candidate):
                return candidate, begin
    return None, 0


def _cut(match: re.Match[str]) -> Iterator[tuple[str, int]]:
    """A part as it stands, and its end behind each dot: `eth0.100` is an interface, `web.example.eth0` ends in one."""
    text = match[0]
    yield text, match.start()
    for dot in (place for place, letter in enumerate(text) if letter == "."):
        yield text[dot + 1 :], match.start() + dot + 1


def _prefixes_of_many_folders(parts: Sequence[_Parts]) -> frozenset[str]:
    """Beginnings of names that files of several hosts' folders have in common: they are no host's."""
    folders: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        if part.prefix and part.folder:
            folders[part.prefix].add(part.folder)
    return frozenset(prefix for prefix, inside in folders.items() if len(inside) > 1)


def _place(part: _Parts, shared: frozenset[str], layout: re.Pattern[str] | None) -> tuple[str, str | None]:
    """Host and interface."""
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
    """The description that speaks of all the files, with its samples; those of several recordings speak of none."""
    found = {name for url in urls for name in descriptions(url) if name in sidecar}
    if len(found) != 1:
        return ()
    (description,) = found
    return tuple(sidecar[name] for name in (description, samples(description)) if name in sidecar)


def _rest(stem: str, host: str, interface: str | None) -> str:
    """Give the rest of a name without host and interface."""
    for known in (host, interface or ""):
        stem = stem.replace(known, "", 1) if known else stem
    return stem.strip("._-+@ ")


_MOST_MISSING = 100


def _missing(ordered: Sequence[_Parts]) -> tuple[int, ...]:
    """Holes in the numbers; with times in the names numbers may begin anew."""
    numbers = [part.sequence for part in ordered if part.sequence is not None]
    if len({part.time for part in ordered}) > 1 or len(numbers) < 2 or max(numbers) - min(numbers) > 10**6:
        return ()
    there = set(numbers)
    return tuple(number for number in range(min(numbers), max(numbers)) if number not in there)[:_MOST_MISSING]


def digest(text: str) -> str:
    """Ten hexadecimal digits that tell texts apart."""
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
