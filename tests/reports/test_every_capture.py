"""What the reports hold for every capture, of which each is analyzed once for all of them."""

from __future__ import annotations

import pytest
from support import ALL_CAPTURES
from test_json import check_document, read_back
from test_one_screen import check_screen
from test_openmetrics import check_metrics

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError


@pytest.mark.parametrize("files", ALL_CAPTURES)
def test_every_capture(files: tuple[str, ...]) -> None:
    try:
        analysis = analyze(list(files))
    except NoGrpcError as error:
        if error.analysis is not None:
            check_screen(error.analysis)
        return
    check_screen(analysis)
    check_metrics(analysis)
    check_document(read_back(analysis), files)
