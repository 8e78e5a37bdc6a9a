"""Files that take their places when they are whole: until then whatever has their names stays as it is."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .. import interruption
from .folder import Folder, Place, find, find_in_roots_folder, open_device

if TYPE_CHECKING:
    import pwd

PRIVATE = 0o600
"""Mode of files that may hold secrets."""
ORDINARY = 0o666
"""Mode of other files, of which the umask takes its part."""


def random_name() -> str:
    """Make a name for an unfinished file that nobody can guess."""
    return f".grpcdiag-{random_part()}"


def random_part() -> str:
    """Make the random part of such a name."""
    return os.urandom(5).hex()


class Part:
    """A new file under a name of its own, until it is published."""

    def __init__(self, folder: Folder, name: str, mode: int = ORDINARY) -> None:
        """Make it. Raises OSError."""
        self.folder = folder
        self.name = name
        self.unfinished = True
        """It goes when it is discarded."""
        with interruption.Indivisible():
            self.descriptor = folder.make(name, mode)
            interruption.remember(self)

    def undo(self) -> None:
        """Remove it before a signal ends the process, unless it is published or kept."""
        self.discard()

    def publish(self, name: str) -> None:
        """Give it the name that it is for. Raises OSError; it then keeps its own."""
        if sys.platform == "win32":  # which renames no open files
            self._close()
        self.folder.rename(self.name, name)
        self.name, self.unfinished = name, False

    def keep(self) -> None:
        """Leave it where it is, whatever happens."""
        self.unfinished = False

    def remove(self) -> None:
        """Close it and remove it, also when it was to be kept."""
        self.unfinished = True
        self.discard()

    def discard(self) -> None:
        """Close it, and remove it unless it is published or kept."""
        interruption.forget(self)
        self._close()
        if self.unfinished:
            self.unfinished = False
            with suppress(OSError):
                self.folder.remove(self.name)

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def begin(
    path: Path, user: pwd.struct_passwd | None, mode: int, named: Callable[[str], str]
) -> tuple[Place, Part | None]:
    """Find the place of a file, and make a new file beside it, unless a device is there. Raises OSError.

    `named` makes the new file's name of the file's. Root acts with the rights of `user`; where these do not suffice,
    it acts as root in a folder that root alone can change.
    """
    try:
        return _begin(find(path, user), mode, named)
    except PermissionError:
        if user is None:
            raise
        return _begin(find_in_roots_folder(path, user), mode, named)


def _begin(place: Place, mode: int, named: Callable[[str], str]) -> tuple[Place, Part | None]:
    try:
        return place, None if place.device else Part(place.folder, named(place.name), mode)
    except OSError:
        place.folder.close()
        raise


@contextmanager
def replacing(path: Path, user: pwd.struct_passwd | None = None, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Make a file that takes the place of `path` once all is written, and is removed after an error or Ctrl-C.

    What is no ordinary file, such as a pipe or /dev/stdout, is written as it is, and so is a file in a folder that
    takes no others. Without `mode` it has the mode of the file that it replaces. Raises OSError.
    """
    place, part = _begin_or_open(path, user, ORDINARY if mode is None else mode)
    with place:
        if isinstance(part, int):
            with open(part, "wb") as out:
                yield out
            return
        try:
            with open(part.descriptor, "wb", closefd=False) as out:
                yield out
            old = place.folder.look(place.name) if mode is None else None
            if old is not None and stat.S_ISREG(old.st_mode) and sys.platform != "win32":
                os.fchmod(part.descriptor, old.st_mode & 0o777)
            part.publish(place.name)
        finally:
            part.discard()


def _begin_or_open(path: Path, user: pwd.struct_passwd | None, mode: int) -> tuple[Place, Part | int]:
    """Begin a file as `begin` does; open what must be written in place, and give its descriptor. Raises OSError."""
    try:
        place, part = begin(path, user, mode, lambda _: random_name())
    except PermissionError:
        place = find(path, user)
        if place.folder.look(place.name) is None:
            place.folder.close()
            raise
        return place, place.folder.open(place.name, os.O_WRONLY | os.O_TRUNC)
    return place, part or open_device(path, place)


@contextmanager
def replacing_in(folder: Path, *, parents: bool = False) -> Iterator[Callable[[str], IO[bytes]]]:
    """Give a function that makes files for a folder; all get their names together, or are removed after an error.

    The folder is made if need be, with those above it if `parents`, and then gone as well. Raises OSError.
    """
    new = not folder.exists()
    folder.mkdir(parents=parents, exist_ok=True)
    made: dict[str, Part] = {}
    with ExitStack() as stack:
        if new:
            stack.enter_context(interruption.Unfinished(lambda: folder, _remove_empty))
        here = stack.enter_context(find(folder / "any")).folder

        def make(name: str) -> IO[bytes]:
            part = made[name] = Part(here, random_name())
            stack.callback(part.discard)
            return open(part.descriptor, "wb", closefd=False)

        yield make
        with interruption.Indivisible():
            for name, part in made.items():
                part.publish(name)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it holds what was written
        folder.rmdir()
