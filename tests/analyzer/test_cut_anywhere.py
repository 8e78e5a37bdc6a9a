"""What an open call's time is, up to a second before the capture ends, does not depend on where it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from guises import Packets
from support import RECORDED

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import hung_rpc
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import COMPLETE, Ints, Tables
from grpcdiag.fixtures.synthetic.words import S

CUTS = 30
SERVER = CAUSES.index("server")
NAMES = (
    "hung-rpc",
    "hung-rpc-grpcio",
    "window-deadlock",
    "window-deadlock-others",
    "h2-pending-open",
    "client-vanished",
)


def cut_anywhere(name: str, folder: Path) -> list[Tables]:
    """The capture without its last packets, cut at so many places."""
    file = folder / "cut.pcap"
    with pa.input_stream(str(RECORDED / "wild" / f"{name}.pcap.zst")) as whole:
        file.write_bytes(whole.read())
    packets = Packets(file)
    ends = [len(packets.all) * nth // CUTS for nth in range(1, CUTS + 1)]
    written = [packets.written(packets=packets.all[:end]) for end in ends]
    return [decode([str(file)], rpc_rows=True) for one in written if file.write_bytes(one)]


def open_budgets(tables: Tables) -> dict[tuple[int, int], Ints]:
    """The budgets of the calls that are open, by connection and stream."""
    r = tables.rpcs
    rows = np.flatnonzero(r.flags & COMPLETE == 0).tolist()
    return {(int(r.connection[row]), int(r.stream[row])): tables.rpc_budgets[row] for row in rows}


@pytest.mark.parametrize("name", NAMES)
def test_no_later_packet_changes_what_an_open_call_waited_for(name: str, tmp_path: Path) -> None:
    budgets = [open_budgets(tables) for tables in cut_anywhere(name, tmp_path)]
    compared = 0
    for nth, earlier in enumerate(budgets):
        for later in budgets[nth + 1 :]:
            for call in earlier.keys() & later.keys():
                compared += 1
                assert (earlier[call] - later[call]).max() <= S, (nth, call)
    assert compared > CUTS


@pytest.mark.parametrize(("name", "stream"), [("hung-rpc", 57), ("hung-rpc-grpcio", 33)])
def test_the_server_is_named_wherever_the_capture_ends(name: str, stream: int, tmp_path: Path) -> None:
    """Other calls go on beside the one that hangs: their packets at the end say nothing about it."""
    cuts = cut_anywhere(name, tmp_path)
    hanging = [(tables, budgets[0, stream]) for tables in cuts if (0, stream) in (budgets := open_budgets(tables))]
    assert len(hanging) > CUTS * 3 // 4
    for tables, budget in hanging:
        assert budget[SERVER] >= budget.sum() - 0.2 * S
        found = list(hung_rpc.detect(tables, hung_rpc.Limits()))
        assert len(found) == (budget.sum() > 1.2 * S)
