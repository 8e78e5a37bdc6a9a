"""What `grpcdiag --version` prints: the version, and from what the core was built."""

from .analyzer import _core


def describe_version() -> str:
    """Name the version, commit and date of the build, and Cargo's profile."""
    commit, date, profile = _core.__build__
    source = f"commit {commit}, built {date}" if commit else "commit and build date unknown"
    return f"grpcdiag {_core.__version__} ({source}, Rust profile {profile})"
