"""The command `grpcdiag`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line; exit codes are those of `grpcdiag --help`."""
    if sys.argv[1:] == ["--version"]:
        from .analyzer import _core  # without the command line's libraries, which take longer than the answer

        print(f"grpcdiag {_core.__version__}")
        return
    # a command is one pass: what it makes goes with the process, and looking for cycles takes time from the start
    gc.disable()
    # numpy's linear algebra is not used: without this its threads wait beside ours, spinning
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .cli import app

    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader has gone (`grpcdiag ... | head`): nothing more to say, and nothing to complain about
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    finally:
        if "duckdb" not in sys.modules:  # which complains about what is left
            gc.freeze()  # nor at the end


if __name__ == "__main__":
    main()
