"""grpcdiag: where the time of every RPC in a packet capture went, why, and which packets prove it."""

TYPE_CHECKING = False  # a signal is heeded sooner without typing
if TYPE_CHECKING:
    from .analyzer.analysis import analyze as analyze

__all__ = ["analyze"]


def __getattr__(name: str) -> object:
    """Import `analyze` when it is first used: numpy costs more time than a short command does."""
    if name == "analyze":
        from .analyzer.analysis import analyze

        return analyze
    raise AttributeError(name)
