"""Manage the files of a recording: they have temporary names until the recording has ended."""

import contextlib
import errno
import json
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..analyzer.sidecar.names import KEYS_SUFFIX, PROCESSES_SUFFIX, SAMPLES_SUFFIX, SUFFIX, encode_description
from ..files.atomic_file import PRIVATE, Part, begin, random_name, random_part
from ..files.folder import Place, find_in_roots_folder, open_device
from ..files.rights import Rights
from .errors import RecordingError, UsageError
from .tcpdump import Rotation

STDOUT = "-"
"""Output that is a stream."""
LEAST_FREE = 2_000_000
"""Free bytes on the disk needed to begin; a recording ends at less (heuristic: room for buffered packets)."""
_SUFFIXES = (SUFFIX, SAMPLES_SUFFIX, PROCESSES_SUFFIX, KEYS_SUFFIX)
_ENDING = ".pcap"
"""AppArmor's profile of tcpdump (Debian, Ubuntu) allows names with this ending."""
_NOT_ROOTS = "root rotates files only in a folder that only root can change"
_LONGEST = 180
"""Most bytes of a name before the random part is added; file systems allow 255."""


class Output:
    """The files of one recording. Existing files do not change before `publish`."""

    def __init__(self, path: Path, user: pwd.struct_passwd | None, mode: int, rotate: Rotation | None) -> None:
        """Make the first new file next to `path`. Raises RecordingError."""
        self.path = path
        self.mode = mode
        self._rotate = rotate
        self._user = user
        self._unique = random_part()
        self._parts: list[Part] = []
        self._side_files: dict[str, Part] = {}
        """Files next to the capture, by their suffixes."""
        try:
            self._place, self._first = self._begin()
        except OSError as error:
            raise UsageError(f"cannot write {path}: {_explain_error(error, user)}") from None
        if self._first:
            self._parts.append(self._first)
            os.fchmod(self._first.descriptor, mode)
        if self.device and rotate:
            self.discard()
            raise UsageError(f"cannot write {path}: --rotate needs ordinary files")
        if not self.device and self.free_bytes() < LEAST_FREE:
            free = self.free_bytes()
            self.discard()
            raise RecordingError(f"cannot write {path}: only {free:,} bytes are free on the disk")

    def _begin(self) -> tuple[Place, Part | None]:
        """Make the first file; for a ring it is the sidecar, because tcpdump makes the others. Raises OSError."""
        ending = SUFFIX if self._rotate else ""
        place, part = begin(self.path, self._user, self.mode, lambda name: self._named(name) + ending)
        if part is not None and self._rotate and os.geteuid() == 0 and place.folder.rights.user is None:
            try:  # tcpdump opens these files by their paths, as root
                find_in_roots_folder(self.path).folder.close()
            except OSError:
                part.discard()
                place.folder.close()
                raise PermissionError(errno.EACCES, _NOT_ROOTS) from None
        return place, part

    def _named(self, name: str) -> str:
        stem = name.removesuffix(_ENDING)
        stem = os.fsdecode(os.fsencode(stem)[:_LONGEST])
        return f"{stem}.recording-{self._unique}{_ENDING}"

    @property
    def device(self) -> bool:
        """Say whether the output is a pipe or a device: a stream without a sidecar."""
        return self._place.device

    @property
    def name(self) -> str:
        """Give the final name of the capture."""
        return self._place.name

    @property
    def unfinished(self) -> str:
        """Give the temporary name of the capture, without the numbers of a ring."""
        return self._named(self._place.name)

    def open(self) -> tuple[int, str, pwd.struct_passwd | None]:
        """Give the descriptor, the path (`-` for the descriptor) and the user for tcpdump's output. Raises OSError."""
        if self._rotate:
            return os.open(os.devnull, os.O_WRONLY), self._locate(self.unfinished), self._place.folder.rights.user
        if self._first is None:
            return open_device(self.path, self._place), "-", self._user
        return os.dup(self._first.descriptor), "-", self._user

    def _locate(self, name: str) -> str:
        """Give the full path of a file in the folder, for another program. Raises OSError."""
        with self._place.folder.rights.taken():
            where = os.path.realpath(os.path.dirname(os.path.realpath(self.path)))
        return os.path.join(where, name)

    def free_bytes(self) -> int:
        """Count the free bytes on the disk. Raises OSError."""
        return self._place.folder.free_bytes()

    def descriptor(self) -> int | None:
        """Give the descriptor of a single capture file; None for a ring or a device."""
        return None if self._rotate or self._first is None else self._first.descriptor

    def make(self, suffix: str) -> int:
        """Make a new file next to the capture, and give its descriptor. Raises OSError."""
        self._side_files[suffix] = self._part(self.unfinished + suffix, PRIVATE if suffix == KEYS_SUFFIX else None)
        return self._side_files[suffix].descriptor

    def drop(self, suffix: str) -> None:
        """Remove that file."""
        if part := self._side_files.pop(suffix, None):
            part.remove()

    def make_keys(self) -> tuple[int, str]:
        """Make a new file for TLS secrets that the command can write; give its path, too. Raises OSError."""
        made = self.make(KEYS_SUFFIX)
        path = self._locate(self._side_files[KEYS_SUFFIX].name)
        with Rights(self._user).taken():
            os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW))
        return made, path

    def replace(self, pieces: Iterable[bytes]) -> None:
        """Write the capture anew. Raises OSError, and then it stays as it was."""
        new = self._part(random_name())
        try:
            for piece in pieces:
                _write(new.descriptor, piece)
            new.publish(self.unfinished)
        finally:
            new.discard()

    def write_side(self, document: dict[str, Any]) -> None:
        """Write the complete sidecar, or leave the previous one. Raises OSError."""
        text = encode_description(document)
        if SUFFIX not in self._side_files:
            ring = self._first if self._rotate else None
            self._side_files[SUFFIX] = ring or self._part(self.unfinished + SUFFIX)
            _write(self._side_files[SUFFIX].descriptor, text)
            return
        new = self._part(random_name())
        try:
            _write(new.descriptor, text)
        except OSError:
            new.discard()
            raise
        self._side_files[SUFFIX].remove()
        self._side_files[SUFFIX] = new

    def _part(self, name: str, mode: int | None = None) -> Part:
        mode = self.mode if mode is None else mode
        part = Part(self._place.folder, name, mode)
        os.fchmod(part.descriptor, mode)
        self._parts.append(part)
        return part

    def sidecar(self, host: str, suffix: str = "") -> tuple[Part, str]:
        """Make a new file for the capture of another host, or next to it, and give its final name. Raises OSError."""
        stem, ending = os.path.splitext(self._place.name)
        name = f"{stem}.{host}{ending or _ENDING}{suffix}"
        return self._part(self._named(name)), name

    def shown(self, name: str) -> str:
        """Give a file's path in the folder as the user named it."""
        folder = Path(os.path.realpath(self.path)).parent if self.path.is_symlink() else self.path.parent
        return str(folder / name)

    def keep(self) -> None:
        """Keep the files from now on, even after an error."""
        for part in self._parts:
            part.keep()

    def withdraw(self) -> None:
        """Remove all files of the recording."""
        for part in self._parts:
            part.remove()

    def publish(self) -> tuple[list[str], list[str]]:
        """Give all files their final names; return the paths of the capture's files, and problems."""
        if self.device:
            return [], []
        folder, problems = self._place.folder, list[str]()
        try:
            old = self._old_ring() if self._rotate else []
            names = self._ring() if self._rotate else [self.unfinished]
            for suffix in _SUFFIXES:  # of the recording before
                folder.remove(self.name + suffix)
            for name in names:
                folder.rename(name, self.name + name.removeprefix(self.unfinished))
            ends = [name.removeprefix(self.unfinished) for name in names]
            for end in set(old) - set(ends):
                folder.remove(self.name + end)
        except OSError as error:
            kept = self.shown(self.unfinished)
            return [kept], [f"cannot write {self.path}: {error.strerror}; what was recorded is in {kept}"]
        for suffix, part in self._side_files.items():
            try:
                part.publish(self.name + suffix)
            except OSError as error:
                problems.append(f"cannot write {self.shown(self.name + suffix)}: {error.strerror}")
        return [self.shown(self.name + end) for end in ends], problems

    def _ring(self) -> list[str]:
        """List the files that tcpdump has made, and give each to its owner. Raises OSError."""
        folder = self._place.folder
        names = [name for name in folder.names() if _find_number(name, self.unfinished) is not None]
        for name in names:
            made = folder.open(name, os.O_RDONLY | os.O_NONBLOCK)
            try:
                folder.give(made)
                with folder.rights.taken():
                    os.fchmod(made, self.mode)
            finally:
                os.close(made)
        return names

    def _old_ring(self) -> list[str]:
        """List the numbers of the previous ring, as its sidecar says; the new ring replaces it. Raises OSError."""
        folder = self._place.folder
        try:
            side = folder.open(self.name + SUFFIX, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return []
        try:
            document = json.loads(os.read(side, 1 << 20))
            ring = stat.S_ISREG(os.fstat(side).st_mode) and bool(document["capture"]["rotate"])
        except (OSError, ValueError, LookupError, TypeError):
            return []
        finally:
            os.close(side)
        ends = (_find_number(name, self.name) for name in folder.names()) if ring else ()
        return [end for end in ends if end is not None]

    def discard(self) -> None:
        """Close everything, and remove files that are neither published nor kept."""
        if self._rotate and any(part.unfinished for part in self._parts):
            with contextlib.suppress(OSError):
                for name in self._ring():
                    self._place.folder.remove(name)
        for part in self._parts:
            part.discard()
        self._place.folder.close()


def _find_number(name: str, base: str) -> str | None:
    """Give the number that tcpdump added to a file of a ring; None for other files."""
    end = name.removeprefix(base)
    return end if name.startswith(base) and (not end or (end.isascii() and end.isdigit())) else None


def _write(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]


def _explain_error(error: OSError, user: pwd.struct_passwd | None) -> str:
    """Say what went wrong, and what to do if permissions are missing."""
    text = error.strerror or str(error)
    if not isinstance(error, PermissionError) or os.geteuid() != 0:
        return text
    if user is None:
        return f"{text}; write to such a folder, or name the folder's owner with --user"
    return (
        f"{text}: {user.pw_name} may not write there, and root writes for users only in folders that only root can "
        "change; write to another folder, or name another user with --user"
    )
