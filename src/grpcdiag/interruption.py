"""How a signal ends the command: at once, whatever the command is doing, and nothing unfinished stays behind.

No exception is raised, because it would come up anywhere: in an import, in a library's callback, in a clean-up. The
main thread's signal handler undoes what is unfinished and leaves by `os._exit`. While a library keeps the main thread
from Python, a thread of this module does that in its place. This module imports only what is built into Python: the
handlers are there before anything else is imported.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False  # typing takes longer than all of this
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any, NoReturn
else:
    import _signal

MAIN_THREAD_S = 0.1
"""Seconds that the main thread has to come back to Python before the other thread ends the process."""
LIMIT_S = 0.8
"""Seconds after which the process ends whatever is still to undo."""

_NUMBERS = (_signal.SIGINT, _signal.SIGTERM, *(() if sys.platform == "win32" else (_signal.SIGHUP,)))

_unfinished: list[Any] = []
"""Things with a method `undo`, the newest last."""
_ending = _thread.allocate_lock()
"""Taken for good by the thread that ends the process."""
_ender = 0
_indivisible = 0
"""How many blocks of `Indivisible` the main thread is in."""
_waiting = 0
"""The signal that came meanwhile."""
_raises = 0
"""How many blocks of `Raising` the main thread is in."""
_raised = 0
"""The signal that was raised in one."""
_sent_again = 0
"""The signal that this module sends, because Python dropped what was raised for it."""


def heed_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end the process, with 128 and the signal's number as its exit code.

    Signals that the caller had ignored, as nohup does, stay ignored. Handlers that a command sets take precedence.
    """
    defaults = (_signal.default_int_handler, _signal.SIG_DFL)
    numbers = [number for number in _NUMBERS if _signal.getsignal(number) in defaults]
    for number in numbers:
        _signal.signal(number, _heard)
    if not numbers or sys.platform == "win32":  # where the main thread alone ends the process
        return
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    _signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    # the thread gets no signals: they are for the main thread, also where that waits for them
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    _thread.start_new_thread(_watch, (heard,))
    _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def leave(code: int) -> NoReturn:
    """End the process without finalising Python, which threads inside the core would not survive.

    A signal that comes now is too late: everything is done.
    """
    for number in _NUMBERS:
        if _signal.getsignal(number) is _heard:
            _signal.signal(number, _signal.SIG_IGN)
    if atexit := sys.modules.get("atexit"):
        atexit._run_exitfuncs()
    os._exit(128 + _raised if _raised else code)


def remember(thing: Any) -> None:
    """Call `thing.undo()` before a signal ends the process, unless it is forgotten by then."""
    _unfinished.append(thing)


def forget(thing: Any) -> None:
    """Forget a thing that is finished, or removed."""
    if thing in _unfinished:
        _unfinished.remove(thing)


class Unfinished:
    """What `make` makes and `undo` takes away: at the end of the block, and before a signal ends the process.

    `undo` may be called when the thing has gone already, or has been renamed.
    """

    def __init__(
        self, make: Callable[[], Any], undo: Callable[[Any], object], *, only_for_signals: bool = False
    ) -> None:
        """`make` runs when the block is entered; `undo` not at its end, if it is only for signals."""
        self._make, self._undo, self._only_for_signals = make, undo, only_for_signals

    def __enter__(self) -> Any:
        """Make the thing and return it."""
        with Indivisible():
            self._made = self._make()
            remember(self)
        return self._made

    def __exit__(self, *_: object) -> None:
        """Undo it."""
        if not self._only_for_signals:
            self.undo()
        forget(self)

    def undo(self) -> None:
        """Take away what was made."""
        self._undo(self._made)


def scratch(prefix: str, parent: Any = None) -> Unfinished:
    """Make a temporary folder for a block, which gets its path."""

    def make() -> Any:
        from pathlib import Path
        from tempfile import mkdtemp

        return Path(mkdtemp(prefix=prefix, dir=parent))

    return Unfinished(make, remove_folder)


def remove_folder(folder: Any) -> None:
    """Remove a folder with all that is in it, also while another thread still writes there."""
    from shutil import rmtree

    for _ in range(10):
        rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


class Indivisible:
    """A block of the main thread at whose end a signal is heard, not within: for milliseconds."""

    def __enter__(self) -> None:
        """Let signals wait."""
        global _indivisible
        _indivisible += _in_main_thread()

    def __exit__(self, *_: object) -> None:
        """Handle the signals that came."""
        global _indivisible
        _indivisible -= _in_main_thread()
        if _waiting and not _indivisible:
            _heard(_waiting, None)


class Raising:
    """A block in which a signal raises KeyboardInterrupt, for commands with processes that take an orderly end.

    The second signal ends the process at once.
    """

    def __enter__(self) -> None:
        """Let a signal raise KeyboardInterrupt."""
        global _raises
        _raises += 1
        sys.unraisablehook = _hear_again

    def __exit__(self, *_: object) -> None:
        """Let signals end the process as before."""
        global _raises
        _raises -= 1


def _in_main_thread() -> bool:
    return _thread.get_ident() == _main_thread


_main_thread = _thread.get_ident()


def _heard(number: int, _frame: FrameType | None) -> None:
    """Handle a signal in the main thread, between two steps of Python."""
    global _raised, _sent_again, _waiting
    if _indivisible:
        _waiting = number
    elif _raises and not _raised:
        _raised = number
        raise KeyboardInterrupt
    elif _raises and number == _sent_again:
        _sent_again = 0  # another one came just before it and was raised
    elif _raises:
        os._exit(128 + number)
    elif _ender != _thread.get_ident():
        _end(number)


def _hear_again(dropped: Any) -> None:
    """Python drops what is raised in a finalizer or in the callback of a weak reference: raise it again behind that."""
    global _indivisible, _raised, _waiting
    if _raised and isinstance(dropped.exc_value, KeyboardInterrupt):
        _indivisible += 1  # Python would drop what is raised here, too
        number, _raised = _raised, 0
        _thread.start_new_thread(_send_again, (number,))
        _waiting = 0  # `_send_again` stands for it
        _indivisible -= 1
    else:
        sys.__unraisablehook__(dropped)


def _send_again(number: int) -> None:
    """Send a signal again, unless another one is raised meanwhile; this one may then still be on its way."""
    global _sent_again
    time.sleep(MAIN_THREAD_S)
    _sent_again = number  # before the check: a signal that comes after it finds this
    if not _raised:
        os.kill(os.getpid(), number)
        time.sleep(MAIN_THREAD_S)
    _sent_again = 0


def _watch(heard: int) -> None:
    """End the process where the main thread does not come back to do so."""
    while told := os.read(heard, 1):
        number = told[0]
        if _signal.getsignal(number) is not _heard or _raises:
            continue
        time.sleep(MAIN_THREAD_S)
        until = time.monotonic() + LIMIT_S
        while _indivisible and time.monotonic() < until:
            time.sleep(0.001)
        _end(number)


def _end(number: int) -> NoReturn:
    """Undo what is unfinished and end the process; the second thread here sees to it that it does not take long."""
    global _ender
    if not _ending.acquire(blocking=False):
        time.sleep(LIMIT_S)
        os._exit(128 + number)
    _ender = _thread.get_ident()
    for child in _children():
        _try(_ask_to_end, child)
    for unfinished in reversed(_unfinished):
        _try(_undo, unfinished)
    os._exit(128 + number)


def _undo(thing: Any) -> None:
    thing.undo()


def _ask_to_end(child: int) -> None:
    os.kill(child, _signal.SIGTERM)


def _try(undo: Callable[[Any], object], what: Any) -> None:
    """Undo one thing; whatever goes wrong, the others follow."""
    try:
        undo(what)
    except BaseException:
        return


def _children() -> Iterator[int]:
    """Yield the processes that this one has started, as far as the system tells."""
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208 pathlib is late
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                parent = file.read().rpartition(b")")[2].split()[1]
        except (OSError, IndexError):  # no process, or one that has ended
            continue
        if int(parent) == os.getpid():
            yield int(name)
