"""The flight recorder of `watch`: the streams and folders that it takes, and what it says of packets it cannot keep."""

from __future__ import annotations

import errno
import os
import pwd
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support import SYNTHETIC, recorded
from test_hostile_text import VALUES, capture
from test_watch import totals, watch

from grpcdiag.analyzer.live import LiveCapture
from grpcdiag.analyzer.live.triggers import parse
from grpcdiag.capture.errors import UsageError
from grpcdiag.capture.ring import Keep
from grpcdiag.cli.watching.flight_recorder import FlightRecorder
from grpcdiag.cli.watching.options import Options
from grpcdiag.reports.wireshark.comments import LONGEST, make_comment

FILE = Path(recorded("rpc-errors.pcap"))
TRIGGER = "status=failed rate > 0%"
NOBODY = pwd.getpwnam("nobody")


def make_options(folder: Path) -> Options:
    return Options(
        interface="",
        stream="-",
        expression="",
        folder=folder,
        keep=Keep(),
        per_hour=6,
        triggers=(parse(TRIGGER, []),),
        gates=(),
        fails_on_trigger=False,
        hook=(),
        seconds=None,
        metrics=None,
        as_json=True,
        quiet=True,
    )


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that every user can reach, and write like /tmp."""
    with tempfile.TemporaryDirectory(prefix="grpcdiag-test-") as path:
        Path(path).chmod(0o1777)
        yield Path(path)


def take(folder: Path, user: pwd.struct_passwd | None = None) -> None:
    with closing(FlightRecorder(make_options(folder), user)):
        pass


def convert_to_microseconds(data: bytes, order: str) -> bytes:
    """Convert a pcap to what tcpdump writes without options, on a machine of another byte order perhaps."""
    found, at = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, *struct.unpack_from("<HHiIII", data, 4)), 24
    while at < len(data):
        seconds, nanoseconds, length, whole = struct.unpack_from("<IIII", data, at)
        found += struct.pack(f"{order}IIII", seconds, nanoseconds // 1000, length, whole)
        found += data[at + 16 : at + 16 + length]
        at += 16 + length
    return found


@pytest.mark.parametrize("order", "<>")
def test_a_stream_in_microseconds_is_kept(order: str, tmp_path: Path) -> None:
    """As that of `ssh server 'tcpdump -U -w -'`."""
    stream = convert_to_microseconds(FILE.read_bytes(), order)
    intervals, done = watch("-o", str(tmp_path), "--keep", "1h", "--trigger", TRIGGER, stream=stream)
    assert (done.code, intervals[-1]["problems"]) == (0, []), done.err
    (file,) = tmp_path.glob("*.pcapng")
    assert totals(file)["totals"]["rpcs"] == totals(FILE)["totals"]["rpcs"]


def test_a_stream_that_cannot_be_kept_is_wrong_usage(tmp_path: Path) -> None:
    stream = (SYNTHETIC / "pcapng.pcapng").read_bytes()
    intervals, done = watch("-o", str(tmp_path / "new"), "--trigger", TRIGGER, stream=stream)
    assert (intervals, done.code) == ([], 2)
    assert "--trigger needs a stream that can be kept: this is no pcap, as `tcpdump -w -`" in done.err
    assert watch(stream=stream)[1].code == 0


def keep(recorder: FlightRecorder, *pieces: bytes) -> None:
    take_piece = recorder.begin_stream()
    assert take_piece
    for piece in pieces:
        take_piece(piece)


def test_problems_are_told_at_once_and_not_again_each_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = FILE.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with closing(FlightRecorder(make_options(tmp_path / "new"), None)) as recorder:
        keep(recorder, data)
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", fail)
                keep(recorder, data)
                assert recorder.settle(0)[1] == ["packets are not kept: Read-only file system"]
                keep(recorder, data)
                assert recorder.settle(0)[1] == []
            keep(recorder, data)
            assert recorder.settle(0)[1] == []
        keep(recorder, data, b"\xff" * 16)
        assert recorder.settle(0)[1] == [
            "the rest of the packets is not kept: the stream is damaged: a packet of 4,294,967,295 bytes"
        ]
        size = recorder.ring.size if recorder.ring else 0
        keep(recorder, data)
        assert (recorder.settle(0)[1], recorder.measure()[0]) == ([], size + len(data))


def test_pieces_of_an_earlier_stream_are_not_kept(tmp_path: Path) -> None:
    """Its writer may still be there for a moment."""
    data = FILE.read_bytes()
    with closing(FlightRecorder(make_options(tmp_path / "new"), None)) as recorder:
        first, second = recorder.begin_stream(), recorder.begin_stream()
        assert first and second
        second(data)
        first(data)
        assert recorder.measure()[0] == len(data)
    second(data)
    assert sum(path.stat().st_size for path in (tmp_path / "new").iterdir()) == len(data)


@pytest.mark.parametrize("name", ["escape", "bidi"])
def test_what_a_capture_says_is_escaped_in_comments(name: str, tmp_path: Path) -> None:
    """The trigger's comment has the name of a method, and a title of a finding may have."""
    file = capture(VALUES[name], tmp_path / "hostile.pcap")
    options = replace(make_options(tmp_path / "new"), triggers=(parse("max(/[!d]*) > 0.001us", []),))
    with closing(FlightRecorder(options, None)) as recorder, file.open("rb") as source:
        keep(recorder, file.read_bytes())
        live = LiveCapture(source.fileno())
        while live.read(0.1):
            pass
        live.cut()
        window = live.window()
        recorder.judge(window.end_ns, live.state().packets, window, window.analyze())
        saved, _ = recorder.settle(window.end_ns, over=True)
    assert saved
    content = saved.path.read_bytes()
    comment = content.partition(b"grpcdiag watch: max(/[!d]*) > 0.001us: max of /")[2][:600]
    shown = comment.partition(b"\0")[0].decode()[:400]
    assert len(shown) > 5 and shown.isprintable()
    assert len(make_comment("m" * 10_000)) == LONGEST


def test_a_new_folder_is_private(outside: Path) -> None:
    """Also one whose parents are missing."""
    take(outside / "a" / "b")
    assert [path.stat().st_mode & 0o777 for path in (outside / "a", outside / "a" / "b")] == [0o700, 0o700]
    take(outside / "a" / "b")
    (outside / "dangling").symlink_to(outside / "c" / "d")
    with pytest.raises(UsageError, match="cannot write"):
        take(outside / "dangling")


def test_a_folder_that_others_can_change_is_refused(outside: Path) -> None:
    for mode in (0o770, 0o702):
        (outside / "shared").mkdir(exist_ok=True)
        (outside / "shared").chmod(mode)
        with pytest.raises(UsageError, match=r"can be changed by others \(chmod go-w\)"):
            take(outside / "shared")
    (outside / "shared").chmod(0o755)
    take(outside / "shared")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for users")
def test_root_takes_no_folder_of_others(outside: Path) -> None:
    theirs = outside / "theirs"
    theirs.mkdir(mode=0o755)
    secret = outside / "secret"
    secret.write_bytes(FILE.read_bytes())
    (theirs / "ring-00000000000000000001.pcap").hardlink_to(secret)
    os.chown(theirs, NOBODY.pw_uid, NOBODY.pw_gid)
    with pytest.raises(UsageError, match="is another user's: name a folder of your own"):
        take(theirs)
    assert secret.read_bytes() == FILE.read_bytes() and secret.stat().st_nlink == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for users")
@pytest.mark.parametrize("to", ["", "more"])
def test_root_follows_no_link_of_others(to: str, outside: Path) -> None:
    (outside / "roots").mkdir(mode=0o700)
    link = outside / "link"
    link.symlink_to(outside / "roots")
    os.chown(link, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)
    with pytest.raises(UsageError, match="does not follow the link"):
        take(link / to)
    assert list((outside / "roots").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for users")
def test_root_acts_with_the_rights_of_the_user(outside: Path) -> None:
    """Under sudo: the folder is the caller's, also on the second time, and root's own folder is not taken."""
    for _ in range(2):
        with closing(FlightRecorder(make_options(outside / "new"), NOBODY)) as recorder:
            keep(recorder, FILE.read_bytes())
    found = [outside / "new", *(outside / "new").iterdir()]
    assert [path.stat().st_uid for path in found] == [NOBODY.pw_uid] * 3
    (outside / "roots").mkdir(mode=0o755)
    with pytest.raises(UsageError, match="is another user's"):
        take(outside / "roots", NOBODY)
    assert list((outside / "roots").iterdir()) == []
