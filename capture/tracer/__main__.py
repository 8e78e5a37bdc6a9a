"""Start the tracer: `python -I -S -B FOLDER WANTED`. Its modules are found behind those of Python, never before."""

import importlib
import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(sys.path.pop(0)))
    sys.exit(importlib.import_module("tracer.recorder").main(sys.argv[1:]))
