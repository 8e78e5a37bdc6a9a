"""What `grpcdiag --version` prints: the version, and from what and how the core was built."""

from .analyzer import _core

_BUILDS = {"release": "release build", "quick": "quick build, a third of the speed of a release"}
"""By Cargo's profile."""


def describe_version() -> str:
    """Name the version, commit and date of the build, and how it was compiled."""
    commit, date, profile = _core.__build__
    source = f"commit {commit}, built {date}" if commit else "commit and build date unknown"
    return f"grpcdiag {_core.__version__} ({source}; {_BUILDS[profile]})"
