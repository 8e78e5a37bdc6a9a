"""`--label`: names for methods that the capture does not name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import recorded, run_here, synthetic

LATE = "wild/go-begun-before.pcap.zst"


@pytest.mark.parametrize("in_a_file", [False, True])
def test_a_method_without_a_name_gets_the_one_given(*, in_a_file: bool, tmp_path: Path) -> None:
    label = "method #1=/shop.v1.Cart/Get"
    if in_a_file:
        names = tmp_path / "names"
        names.write_text(f"# the cart's methods\n\n{label}\nmethod #7 = /shop.v1.Cart/Put\n")
        label = str(names)
    capture = recorded(LATE)
    (method,) = json.loads(run_here("analyze", capture, "--json", "--label", label).text)["methods"]
    assert (method["method"], method.get("label"), method["rpcs"]) == ("/shop.v1.Cart/Get", None, 9)
    rows = run_here("rpcs", capture, "--format", "jsonl", "--label", label).text.splitlines()
    assert {json.loads(row)["method"] for row in rows} == {"/shop.v1.Cart/Get"}


def test_rpcs_of_one_name_are_counted_together() -> None:
    capture = synthetic("begun_late").file
    outcome = run_here("analyze", capture, "--json", "--label", "method #1=/demo.Echo/New")
    (method,) = json.loads(outcome.text)["methods"]
    assert (method["method"], method["rpcs"]) == ("/demo.Echo/New", 3)
    assert sum(method["statuses"].values()) == 3


@pytest.mark.parametrize("label", ["method #1=Get", "method #0=/a.B/C", "method #1", "no such file"])
def test_what_is_no_label_is_refused(label: str) -> None:
    outcome = run_here("rpcs", recorded(LATE), "--label", label)
    assert (outcome.code, "--label" in outcome.err) == (2, True)
