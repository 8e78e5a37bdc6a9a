"""Open folders: what is done in one happens there, wherever its path leads a moment later."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from .rights import Rights

if TYPE_CHECKING:
    import pwd

# Windows opens no folders, knows no owners, and ends lines in files its own way unless told not to
_OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE
_LISTING = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_HANDLE = getattr(os, "O_PATH", 0) | _LISTING
_MOST_LINKS = 40
"""Links followed on the way to a file, as the kernel does (path_resolution(7))."""


class Folder:
    """An open folder, and the rights with which files in it are made, renamed and removed."""

    def __init__(self, place: int | str, rights: Rights, owner: pwd.struct_passwd | None = None) -> None:
        """Take over `place`: a descriptor, which the folder closes, or a path on systems that open no folders.

        `owner` is given the files that root makes here.
        """
        self._place = place
        self._descriptor = place if isinstance(place, int) else None
        self._path = "" if isinstance(place, int) else place
        self.rights = rights
        self._owner = owner

    def make(self, name: str, mode: int) -> int:
        """Make a new file that nobody else has made, and give its descriptor. Raises OSError."""
        with self.rights.taken():
            made = os.open(self._find(name), _NEW, mode, dir_fd=self._descriptor)
        try:
            self.give(made)
        except OSError:
            os.close(made)
            self.remove(name)
            raise
        return made

    def give(self, descriptor: int) -> None:
        """Give a file to the one whom root makes files for here. Raises OSError."""
        if self._owner is not None:
            os.fchown(descriptor, self._owner.pw_uid, self._owner.pw_gid)

    def open(self, name: str, flags: int) -> int:
        """Open a file that is here, and no link. Raises OSError."""
        with self.rights.taken():
            return os.open(self._find(name), flags | _FILE, dir_fd=self._descriptor)

    @property
    def uid(self) -> int:
        """Whose the files are that are made here."""
        owner = self._owner or self.rights.user
        return os.geteuid() if owner is None else owner.pw_uid

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name, which replaces a file that has it. Raises OSError."""
        with self.rights.taken():
            here = self._descriptor
            os.replace(self._find(old), self._find(new), src_dir_fd=here, dst_dir_fd=here)

    def make_folder(self, name: str, mode: int) -> None:
        """Make a folder that may be there. Raises OSError."""
        with self.rights.taken():
            try:
                os.mkdir(self._find(name), mode, dir_fd=self._descriptor)
            except FileExistsError:
                return

    def synchronise(self) -> None:
        """Return when the names of files are on the disk. Raises OSError."""
        here = self.open(".", _LISTING)
        try:
            os.fsync(here)
        finally:
            os.close(here)

    def remove(self, name: str) -> None:
        """Remove a file that may be gone. Raises OSError."""
        with self.rights.taken():
            try:
                os.unlink(self._find(name), dir_fd=self._descriptor)
            except FileNotFoundError:
                return

    def look(self, name: str) -> os.stat_result | None:
        """Look up what has this name; None if nothing has it."""
        with self.rights.taken():
            return _stat(self._find(name), self._descriptor)

    def _find(self, name: str) -> str:
        return os.path.join(self._path, name)

    def names(self) -> list[str]:
        """List the names in the folder. Raises OSError."""
        with self.rights.taken():
            listing = os.open(".", _LISTING, dir_fd=self._descriptor)
            try:
                return sorted(os.listdir(listing))
            finally:
                os.close(listing)

    def free_bytes(self) -> int:
        """Count the bytes that are free on the folder's disk. Raises OSError."""
        room = os.statvfs(self._place)
        return room.f_bavail * room.f_frsize

    def only_roots(self) -> bool:
        """Check whether only root can change what is in the folder."""
        return _only_roots(os.stat(self._place))

    def close(self) -> None:
        """Close the folder."""
        if self._descriptor is not None:
            os.close(self._descriptor)


class Place(NamedTuple):
    """Where a file is or shall be."""

    folder: Folder
    name: str
    device: bool
    """It is there and no ordinary file: a pipe, a device, standard output. It is written as it is."""

    def __enter__(self) -> Self:
        """Keep the folder open inside the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the folder."""
        self.folder.close()


def find(path: str | Path, user: pwd.struct_passwd | None = None) -> Place:
    """Open the folder of `path`, after links that lead from there. Raises OSError.

    Root follows links only in folders that root alone can change. `user`: root acts with this user's rights.
    """
    name = os.fspath(path)
    if user is None and _OPENS_FOLDERS and os.geteuid() == 0:
        return _find_as_root(name, only_roots=False)
    rights = Rights(user)
    with rights.taken():
        device = _is_device(name)
        target = os.path.abspath(name) if device else os.path.realpath(name)
        where = os.path.dirname(target)
        folder = Folder(os.open(where, _HANDLE) if _OPENS_FOLDERS else where, rights)
    return Place(folder, _last(target, folder), device)


def find_in_roots_folder(path: str | Path, owner: pwd.struct_passwd | None = None) -> Place:
    """Find a place as `find` does, for root: only root can change the folder and the way to it.

    Raises PermissionError for all other folders.
    """
    return _find_as_root(os.fspath(path), only_roots=True, owner=owner)


def open_device(path: str | Path, place: Place) -> int:
    """Open what is no ordinary file for writing. Raises OSError."""
    flags = os.O_WRONLY | getattr(os, "O_NOCTTY", 0) | (_FILE & ~getattr(os, "O_NOFOLLOW", 0))
    if _OPENS_FOLDERS and os.geteuid() == 0 and place.folder.rights.user is None and not place.folder.only_roots():
        descriptor = place.folder.open(place.name, flags)
    else:
        with place.folder.rights.taken():
            descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):  # somebody has put a file there meanwhile
        os.close(descriptor)
        raise OSError(errno.EAGAIN, "it has just become an ordinary file")
    return descriptor


def _is_device(path: str, folder: int | None = None) -> bool:
    try:
        kind = os.stat(path, dir_fd=folder).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def _last(target: str, folder: Folder) -> str:
    name = os.path.basename(target)
    there = folder.look(name) if name else None
    if not name or (there is not None and stat.S_ISDIR(there.st_mode)):
        folder.close()
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return name


def _find_as_root(path: str, *, only_roots: bool, owner: pwd.struct_passwd | None = None) -> Place:
    walk = _Walk(only_roots, owner)
    try:
        return walk.to(os.path.join(os.getcwd(), path))
    except BaseException:
        walk.close(())
        raise


class _Walk:
    """Root's way to a file, one open folder after the other, so that nobody can put a link in between."""

    def __init__(self, only_roots: bool, owner: pwd.struct_passwd | None) -> None:
        self._only_roots = only_roots
        self._owner = owner
        self._trail: list[tuple[int, bool]] = []
        """Open folders, and whether root alone could have led the way there."""

    def to(self, path: str) -> Place:
        """Walk to the folder of `path`. Raises OSError."""
        left, links = self._restart(path), 0
        while left:
            here, trusted = self._trail[-1]
            name = left.pop()
            if name == "..":
                if len(self._trail) > 1:
                    os.close(self._trail.pop()[0])
                continue
            found = _stat(name, here)
            if found is not None and stat.S_ISLNK(found.st_mode):
                links += 1
                if not trusted or not _only_roots(os.fstat(here)) or links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, f"root does not follow the link {name!r}, which others can change")
                target = os.readlink(name, dir_fd=here)
                if not left and not target.startswith("/") and _is_device(name, here):
                    return self._arrive(name, device=True)  # of procfs, as of /dev/stdout: no path says where
                left += self._restart(target) if target.startswith("/") else _parts(target)
            elif left:
                self._enter(name, here, trusted)
            elif found is not None and stat.S_ISDIR(found.st_mode):
                break
            else:
                return self._arrive(name, device=found is not None and not stat.S_ISREG(found.st_mode))
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _restart(self, path: str) -> list[str]:
        self.close(())
        self._trail = [(os.open("/", _HANDLE), True)]
        return _parts(path)

    def _enter(self, name: str, here: int, trusted: bool) -> None:
        inner = os.open(name, _HANDLE | os.O_NOFOLLOW, dir_fd=here)
        above, this = os.fstat(here), os.fstat(inner)
        # in a folder such as /tmp (sticky) nobody can move what is root's
        kept = _only_roots(above) or (above.st_uid == 0 and above.st_mode & stat.S_ISVTX != 0)
        self._trail.append((inner, trusted and kept and this.st_uid == 0))

    def _arrive(self, name: str, *, device: bool) -> Place:
        here, trusted = self._trail[-1]
        if self._only_roots and not (trusted and _only_roots(os.fstat(here))):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self.close((here,))
        return Place(Folder(here, Rights(), self._owner), name, device)

    def close(self, kept: tuple[int, ...]) -> None:
        """Close all folders on the way but those `kept`."""
        for descriptor, _ in self._trail:
            if descriptor not in kept:
                os.close(descriptor)
        self._trail = []


def _parts(path: str) -> list[str]:
    """Split a path into its names, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _stat(name: str, folder: int | None) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _only_roots(folder: os.stat_result) -> bool:
    return folder.st_uid == 0 and not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
