"""Figures of the last seconds for `grpcdiag watch`: what its views show, its lines of JSON, and its metrics."""

from __future__ import annotations

from .calls import list_calls as list_calls
from .connections import ConnectionSamples as ConnectionSamples
from .findings import FindingsLog as FindingsLog
from .interval import RATES_S as RATES_S
from .interval import SPANS_S as SPANS_S
from .interval import CallFigures as CallFigures
from .interval import ConnectionFigures as ConnectionFigures
from .interval import FindingFigures as FindingFigures
from .interval import Interval as Interval
from .interval import MethodFigures as MethodFigures
from .methods import measure_methods as measure_methods
from .totals import OTHER as OTHER
from .totals import UNKNOWN as UNKNOWN
from .totals import Totals as Totals
