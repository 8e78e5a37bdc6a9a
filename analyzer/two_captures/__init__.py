"""Combine two captures of the same connections, taken at two places: one clock, one-way delays, lost packets."""

from .clock import NoClock
from .places import vantages
from .split import SPLIT_CAUSES
from .together import RpcBudgets, analyze_files, rpc_budgets

__all__ = ["SPLIT_CAUSES", "NoClock", "RpcBudgets", "analyze_files", "rpc_budgets", "vantages"]
