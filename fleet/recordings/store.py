"""Find, fetch and write files in folders and object stores through fsspec; requests are retried after errors."""

from __future__ import annotations

import errno
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...analyzer.sidecar.names import descriptions, is_sidecar_file, samples
from ...interruption import Unfinished
from .credentials import HIDDEN, without_credentials
from .series import File, Found, is_capture

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, flock

_Given = TypeVar("_Given")

TRIES = 7
"""Attempts before a store's error is final (heuristic: with the delays below, about half a minute)."""
FIRST_WAIT_S = 0.5
"""Seconds before the second attempt; doubled before each further one."""
LONGEST_WAIT_S = 15.0

_FINAL = (
    *(FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError),
    *(ValueError, TypeError, ImportError),
)
"""Errors that another attempt does not change."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class StoreError(Exception):
    """A store cannot be read or written; the message is the store's, without the credentials of its URL."""

    def __init__(self, text: str, url: str = "", *, lasting: bool = False) -> None:
        """Store the error; `text` may repeat credentials of `url`; if `lasting`, another attempt does not help."""
        super().__init__(without_credentials(text, url))
        self.lasting = lasting


class WriteError(StoreError):
    """A dataset cannot be written."""


class SchemeError(StoreError):
    """The scheme of a URL is unknown, or needs another package."""


_KEYS = "; the store's client takes credentials from the environment, see its documentation"
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError")
"""Names of errors of stores' clients that another attempt does not change."""


def tried(call: Callable[[], _Given], what: str) -> _Given:
    """Send a request to a store, and retry it after temporary errors. Raises StoreError, FileNotFoundError."""
    wait = float(os.environ.get("GRPCDIAG_STORE_WAIT_S", FIRST_WAIT_S))
    for left in range(TRIES - 1, -1, -1):
        try:
            return call()
        except FileNotFoundError:
            raise
        except Exception as error:  # clients of stores raise errors of their own libraries
            lacks_keys = type(error).__name__ in _NO_CREDENTIALS
            if not left or lacks_keys or isinstance(error, _FINAL) or getattr(error, "errno", None) in _FULL:
                lasting = isinstance(error, PermissionError)
                raise StoreError(
                    f"{what}: {_words(error)}{_KEYS if lacks_keys else ''}", what, lasting=lasting
                ) from None
        time.sleep(min(wait, LONGEST_WAIT_S) * random.uniform(0.5, 1.0))  # hosts must not retry all at once
        wait *= 2
    raise AssertionError


def _fetched(call: Callable[[], _Given], url: str, *, several: bool = False) -> _Given:
    """As `tried`, for a file that must be there, or for `several` of which the error names one. Raises StoreError."""
    try:
        return tried(call, url)
    except FileNotFoundError as error:
        raise StoreError(f"{error if several else url}: it is gone", url, lasting=True) from None


def _words(error: BaseException) -> str:
    return f"{getattr(error, 'strerror', None) or error or type(error).__name__}".strip()[:500]


def opened(url: str) -> tuple[Any, str]:
    """Find the file system of a URL or path, and the path in it. Raises StoreError, SchemeError."""
    try:
        import fsspec
    except ImportError:
        raise SchemeError(f"{url}: fsspec is not installed: pip install 'grpcdiag[fleet]'", url) from None
    try:
        system, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise SchemeError(f"{url}: {_lacking(url, error)}", url) from None
    except ValueError as error:
        raise SchemeError(f"{url}: {_words(error)}", url) from None
    except Exception as error:  # clients of stores raise errors of their own libraries
        raise StoreError(f"{url}: {_words(error)}", url) from None
    if not path.startswith(("http://", "https://")) and without_credentials(f"x://{path}") != f"x://{path}":
        raise SchemeError(f"{url}: this store takes no credentials from a URL{_KEYS}", url)
    return system, path


def _lacking(url: str, error: ImportError) -> str:
    """Say which package a URL needs."""
    from importlib.util import find_spec

    from fsspec.registry import known_implementations

    scheme = url.partition("://")[0]
    package = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
    if package in ("", "fsspec") or find_spec(package):
        return _words(error)
    extra = "'grpcdiag[fleet]'" if package == "s3fs" else package
    return f"{scheme}:// needs the package {package}, here and where workers run: pip install {extra}"


def search(source: str, tell: Callable[[str, str], None] = lambda folder, reason: None) -> Iterator[Found]:
    """List the captures of a folder, of a pattern, or one file, with their sidecars; `tell` unreadable folders.

    Raises StoreError.
    """
    from fsspec.core import has_magic

    system, path = opened(source)
    path = path.rstrip("/") or path
    if has_magic(path) and not tried(lambda: system.exists(path), source):
        root = path[: min(path.index(mark) for mark in "*?[" if mark in path)].rpartition("/")[0]
        listed = _matched(system, path, root, source)
    elif _is_folder(system, path, source):
        root, listed = path, _below(system, path, source)
        if local_path(system.unstrip_protocol(path)) is not None:
            _tell_unreadable(path, tell)
    else:
        root = path.rpartition("/")[0]
        listed = _alone(system, path, source)
    for name, info in sorted(listed.items()):
        if info.get("type", "file") == "file":
            yield _found(system, root, name, info)


_Listed = dict[str, dict[str, Any]]


def _is_folder(system: Any, path: str, source: str) -> bool:
    """Check by two requests: for fsspec, what the store gives an error for is no folder."""
    if tried(lambda: system.isdir(path), source):
        return True
    try:
        return bool(tried(lambda: system.info(path), source).get("type") == "directory")
    except FileNotFoundError:
        return False


def _errors(system: Any) -> dict[str, Any]:
    """Give the options of a listing so that errors are raised: fsspec's walk passes over them, as over empty folders.

    Stores with listings of their own raise errors, and know no such option.
    """
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(system)
    walks = kind._find is AsyncFileSystem._find if system.async_impl else kind.find is AbstractFileSystem.find
    return {"on_error": _raise_unless_lasting} if walks else {}


def _raise_unless_lasting(error: OSError) -> None:
    """Raise an error of a store; folders that are gone or closed are told elsewhere."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
        raise error


def _below(system: Any, folder: str, source: str) -> _Listed:
    everything = tried(lambda: system.find(folder, detail=True, **_errors(system)), source)
    named = ((name.rpartition("/")[2], name, info) for name, info in everything.items())
    return {name: info for last, name, info in named if is_capture(last) or is_sidecar_file(last)}


def _tell_unreadable(folder: str, tell: Callable[[str, str], None]) -> None:
    """Tell of each folder below this one that cannot be listed: fsspec passes over it without a word."""
    for _ in os.walk(folder, onerror=lambda error: tell(str(error.filename), error.strerror or str(error))):
        pass


def _matched(system: Any, pattern: str, root: str, source: str) -> _Listed:
    """List what a pattern matches: files with any name, and folders with the captures below them."""
    try:
        listed: _Listed = tried(lambda: system.glob(pattern, detail=True, **_errors(system)), source)
    except FileNotFoundError:
        return {}
    folders = {name for name, info in listed.items() if info.get("type") == "directory"}
    if folders:
        for name, info in _below(system, root, source).items():
            parents = name.split("/")
            if any("/".join(parents[:depth]) in folders for depth in range(1, len(parents))):
                listed[name] = info
    sidecar = f"{pattern.rpartition('/')[0]}/*.grpcdiag*"
    found = tried(lambda: system.glob(sidecar, detail=True, **_errors(system)), source)
    return listed | {name: info for name, info in found.items() if is_sidecar_file(name)}


def _alone(system: Any, path: str, source: str) -> _Listed:
    """List one file with its sidecar. Raises StoreError."""
    try:
        listed = {path: tried(lambda: system.info(path), source)}
    except FileNotFoundError:
        raise StoreError(f"{source}: no such file or folder", source) from None
    # a URL with parameters, such as a signature, opens this file and no other
    for description in descriptions(path) if "://" not in path or "?" not in path else ():
        for name in (description, samples(description)):
            with suppress(FileNotFoundError):
                listed[name] = tried(partial(system.info, name), source)
    return listed


def one(url: str) -> File:
    """Look up the present version of a file. Raises StoreError."""
    system, path = opened(url)
    try:
        info = tried(lambda: system.info(path), url)
    except FileNotFoundError:
        raise StoreError(f"{url}: no such file", url) from None
    return _found(system, "", path, info).file


def head(url: str, most: int) -> bytes:
    """Read the first bytes of a file. Raises StoreError."""
    system, path = opened(url)
    return bytes(_fetched(lambda: system.cat_file(path, start=0, end=most), url))


def part(url: str, begin: int, end: int) -> bytes:
    """Read a range of bytes of a file. Raises StoreError."""
    system, path = opened(url)
    content = bytes(_fetched(lambda: system.cat_file(path, start=begin, end=end), url))
    if len(content) > end - begin:  # web servers without range requests send whole files
        content = content[begin:end]
    if len(content) != end - begin:
        raise StoreError(f"{url}: it became shorter while it was read", url)
    return content


def heads(files: Sequence[File], most: int) -> Iterator[bytes]:
    """Read the first bytes of each file of one store. Raises StoreError."""
    if not files:
        return
    system, _ = opened(files[0].url)
    for begin in range(0, len(files), _HEADS_AT_ONCE):
        some = [file for file in files[begin : begin + _HEADS_AT_ONCE] if file.size]
        paths, ends = [system._strip_protocol(file.url) for file in some], [min(file.size, most) for file in some]
        zeros = [0] * len(some)
        read = partial(system.cat_ranges, paths, zeros, ends, on_error="raise")
        got = _fetched(read, some[0].url, several=True) if some else []
        of = dict(zip((file.url for file in some), got, strict=True))
        for file in files[begin : begin + _HEADS_AT_ONCE]:
            yield bytes(of.get(file.url, b""))[:most]


_HEADS_AT_ONCE = 100
"""Most beginnings of files in memory at once."""


def _found(system: Any, root: str, path: str, info: dict[str, Any]) -> Found:
    version = next((info[key] for key in ("ETag", "etag", "md5Hash", "mtime", "LastModified") if info.get(key)), "")
    below = path[len(root) :].strip("/").split("/")
    size = info.get("size")
    if size is None:  # listings of web servers lack it
        size = tried(lambda: system.size(path), path)
    file = File(system.unstrip_protocol(path), int(size or 0), str(version))
    name, folder = below[-1], system.unstrip_protocol(root)
    if local_path(folder) is None:
        name, folder = without_credentials(name), without_credentials(folder)
        if HIDDEN in name:  # a signed URL: the parameters are no part of the file's name
            name = name.partition("?")[0]
    return Found(file, tuple(below[:-1]), name, folder)


def local_path(url: str) -> str | None:
    """Return the path of a `file://` URL; None for other URLs."""
    return url.removeprefix("file://") if url.startswith("file://") else None


def get(url: str, target: Path) -> None:
    """Copy one file to this machine. Raises StoreError."""
    system, source = opened(url)
    _fetched(lambda: system.get_file(source, str(target)), url)


AT_ONCE = 500
"""Small files per request; the store's client copies them in parallel."""


def fetch_all(urls: Sequence[str], folder: Path) -> list[str]:
    """Return local paths of files of one store; those of object stores are copied to `folder`. Raises StoreError."""
    if not urls or local_path(urls[0]) is not None:
        return [url.removeprefix("file://") for url in urls]
    system, _ = opened(urls[0])
    folder.mkdir(parents=True)
    paths = [str(folder / f"{number}.parquet") for number in range(len(urls))]
    for begin in range(0, len(urls), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        sources = [system._strip_protocol(url) for url in urls[some]]
        _fetched(partial(system.get, sources, paths[some]), urls[begin], several=True)
    return paths


def put(path: Path, url: str) -> None:
    """Copy a local file to `url`, completely or not at all. Raises StoreError."""
    system, target = opened(url)
    if local_path(system.unstrip_protocol(target)) is None:
        try:
            tried(lambda: system.put_file(str(path), target), url)  # one PUT, or a multipart upload
        except FileNotFoundError as error:  # such as a bucket that does not exist
            raise StoreError(f"{url}: {_words(error)}", url) from None
        return

    def replace() -> None:
        final = Path(target)
        final.parent.mkdir(parents=True, exist_ok=True)
        part = final.with_name(f".{final.name[-150:]}.{os.getpid()}")
        mode = path.stat().st_mode & 0o777  # which the copy keeps
        with Unfinished(lambda: part, lambda part: part.unlink(missing_ok=True)), _made(part, mode):
            system.copy(str(path), str(part))
            part.replace(final)

    tried(replace, url)


@contextmanager
def _made(part: Path, mode: int) -> Iterator[None]:
    """Make a file and lock it, so that `remove_parts` of other processes and hosts lets it be. Raises OSError."""
    if sys.platform == "win32":  # which renames no open files
        part.touch(mode)
        yield
        return
    while True:
        with open(part, "ab", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            with suppress(OSError):  # a file system without locks, where nobody removes it
                flock(file, LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # nobody has removed it before it was locked
                yield
                return


_PART = re.compile(r"\..+\.\d+")


def remove_parts(url: str) -> None:
    """Remove the parts of files that killed processes left below a local folder: their locks are gone.

    Raises StoreError.
    """
    system, path = opened(url)
    if sys.platform == "win32" or local_path(system.unstrip_protocol(path)) is None:
        return
    for folder, _, files in os.walk(path):
        for part in (Path(folder, name) for name in files if _PART.fullmatch(name)):
            with suppress(OSError), part.open("rb+") as file:  # another process writes it, or it is another user's
                flock(file, LOCK_EX | LOCK_NB)
                part.unlink()


def put_all(paths: Mapping[str, Path]) -> None:
    """Copy local files to URLs, to object stores several at once. Raises StoreError."""
    if len(paths) < 2 or local_path(next(iter(paths))) is not None or "://" not in next(iter(paths)):
        for url, path in paths.items():
            put(path, url)
        return
    with ThreadPoolExecutor(_PUTS_AT_ONCE) as pool:
        list(pool.map(put, paths.values(), paths))


_PUTS_AT_ONCE = 8
"""Requests at once that write the files of a recording."""


def put_bytes(content: bytes, url: str, folder: Path) -> None:
    """Write bytes to `url`, completely or not at all. Raises StoreError."""
    path = folder / "content"
    path.write_bytes(content)
    put(path, url)


def names(url: str) -> list[str]:
    """List the URLs of all files below a folder; empty if it does not exist. Raises StoreError."""
    return list(sizes(url))


def sizes(url: str) -> dict[str, int]:
    """List the URLs of all files below a folder, with their sizes. Raises StoreError."""
    system, path = opened(url)
    try:
        found = tried(lambda: system.find(path, detail=True, **_errors(system)), url)
    except FileNotFoundError:
        return {}
    return {system.unstrip_protocol(name): int(info.get("size") or 0) for name, info in sorted(found.items())}


def matching(pattern: str) -> list[str]:
    """List the URLs of files that match a pattern. Raises StoreError."""
    system, path = opened(pattern)
    try:
        found = tried(lambda: system.glob(path, **_errors(system)), pattern)
        return sorted(map(system.unstrip_protocol, found))
    except FileNotFoundError:
        return []


def read(urls: Sequence[str]) -> dict[str, bytes]:
    """Read small files of one store. Raises StoreError."""
    if not urls:
        return {}
    system, _ = opened(urls[0])
    paths = {opened(url)[1]: url for url in urls} if len(urls) < 100 else {system._strip_protocol(u): u for u in urls}
    found = _fetched(lambda: system.cat(list(paths), on_error="raise"), urls[0], several=True)
    if isinstance(found, bytes):
        return {urls[0]: found}
    return {paths[path]: content for path, content in found.items()}


def remove(urls: Sequence[str]) -> None:
    """Delete files; missing files are not an error. Raises StoreError."""
    for url in urls:
        system, path = opened(url)
        with suppress(FileNotFoundError):
            tried(partial(system.rm_file, path), url)


def copy(urls: Sequence[str], folder: Path) -> Iterator[str]:
    """Copy files to a folder under their own names, and yield their paths. Raises StoreError."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, url in enumerate(urls):
        name = url.rpartition("/")[2]
        target = folder / (name if len({u.rpartition("/")[2] for u in urls}) == len(urls) else f"{number:05}-{name}")
        get(url, target)
        yield str(target)
