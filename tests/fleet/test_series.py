"""Which files are one recording, and whose."""

from __future__ import annotations

import pytest

from grpcdiag.fleet.recordings.series import File, Found, LayoutError, Recording, is_capture, recordings


def found(path: str, root: str = "file:///captures") -> Found:
    folder, _, name = path.rpartition("/")
    return Found(File(f"{root}/{path}", 100, "1"), tuple(folder.split("/")) if folder else (), name, root)


def of(*paths: str, layout: str | None = None) -> dict[tuple[str, str | None], list[list[str]]]:
    """Names of files by host and interface."""
    sorted_: dict[tuple[str, str | None], list[list[str]]] = {}
    for one in recordings([found(path) for path in paths], layout):
        names = [file.url.removeprefix("file:///captures/") for file in one.files]
        sorted_.setdefault((one.host, one.interface), []).append(names)
    return sorted_


@pytest.mark.parametrize(
    ("paths", "host", "interface"),
    [
        (["web-17_eth0.pcap", "web-17_eth0.pcap1", "web-17_eth0.pcap2", "web-17_eth0.pcap10"], "web-17", "eth0"),
        (["web-17/eth0.pcap00", "web-17/eth0.pcap01"], "web-17", "eth0"),
        (["web-17-ens5-20260701-100000.pcap.gz", "web-17-ens5-20260701-101000.pcap.gz"], "web-17", "ens5"),
        (["web-17.example.org_any_2026-07-01T10:00:00Z.pcapng", "web-17.example.org_any_2026-07-01T10:10:00Z.pcapng"],
         "web-17.example.org", "any"),
        (["run_00001_20260701100000.pcapng", "run_00002_20260701100500.pcapng"], "captures", None),
        (["web-17/2026/07/01/10/eth0.pcap", "web-17/2026/07/01/11/eth0.pcap"], "web-17", "eth0"),
        (["host=web-17/interface=bond0/1782900000.pcap", "host=web-17/interface=bond0/1782900600.pcap"],
         "web-17", "bond0"),
        (["pods/web-17/tcpdump/capture.pcap.zst", "pods/web-17/tcpdump/capture.pcap1.zst"], "web-17", None),
        (["web-17.pcap.1", "web-17.pcap.2"], "web-17", None),
    ],
)  # fmt: skip
def test_one_recording(paths: list[str], host: str, interface: str | None) -> None:
    assert of(*reversed(paths)) == {(host, interface): [paths]}


def test_different_hosts_are_different_recordings() -> None:
    assert of("web-1.pcap", "web-2.pcap") == {("web-1", None): [["web-1.pcap"]], ("web-2", None): [["web-2.pcap"]]}


def test_a_beginning_that_many_folders_share_is_no_host() -> None:
    assert set(of("web-1/client_eth0.pcap", "web-2/client_eth0.pcap")) == {("web-1", "eth0"), ("web-2", "eth0")}


def test_interfaces_of_a_host_are_apart() -> None:
    assert set(of("web-1/eth0.pcap", "web-1/eth1.pcap")) == {("web-1", "eth0"), ("web-1", "eth1")}


def test_a_layout_tells_the_host() -> None:
    assert set(of("a/x7.pcap", "b/x8.pcap", layout=r"(?P<host>x\d+)")) == {("x7", None), ("x8", None)}


@pytest.mark.parametrize("layout", ["(", "nothing"])
def test_a_layout_without_a_host_is_refused(layout: str) -> None:
    with pytest.raises(LayoutError):
        of("a.pcap", layout=layout)


def test_missing_numbers_are_known() -> None:
    (one,) = recordings([found(f"web_eth0.pcap{number}") for number in (0, 1, 4)])
    assert one.missing == (2, 3)


def test_ids_are_the_same_whatever_else_is_there() -> None:
    (alone,) = recordings([found("web-1_eth0.pcap")])
    among = recordings([found("web-2_eth0.pcap"), found("web-1_eth0.pcap")])
    assert alone.id in {one.id for one in among}
    assert isinstance(alone, Recording) and len({one.id for one in among}) == 2


def test_hostile_names_stay_names() -> None:
    (one,) = recordings([found("../../etc/\x1b[31m\n$(reboot)_eth0.pcap")])
    assert one.id.isascii() and one.id.isprintable() and "/" not in one.id and "$" not in one.id


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng", "a.pcap12", "a.cap.gz", "A.PCAP.ZST", "a.pcap.3"])
def test_captures_by_name(name: str) -> None:
    assert is_capture(name)


@pytest.mark.parametrize("name", ["a.txt", "a.pcap.truth.json", "a.pcap.grpcdiag.json", "pcap"])
def test_other_files_of_a_folder(name: str) -> None:
    assert not is_capture(name)
