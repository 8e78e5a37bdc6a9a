"""Calls as ghz makes them, and its JSON report, which `-o FILE` names; `-O` and other options are ignored.

load.py PORT CALLS ... -o FILE
"""

from __future__ import annotations

import json
import sys
import time
from concurrent import futures
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc


def same(data: bytes) -> bytes:
    return data


def main(port: int, calls: int, file: str) -> None:
    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request, same, same)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Bench", {"Echo": handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    details: list[dict[str, Any]] = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo = channel.unary_unary("/demo.Bench/Echo", same, same)
        for _ in range(calls):
            begun = time.time_ns()
            echo(b"hello", timeout=30)
            ended = time.time_ns()
            text = datetime.fromtimestamp(ended // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            stamp = f"{text}.{ended % 10**9:09d}Z"
            details.append({"timestamp": stamp, "latency": ended - begun, "status": "OK", "error": ""})
    server.stop(None).wait()
    options = {"call": "demo.Bench.Echo", "host": f"127.0.0.1:{port}"}
    Path(file).write_text(json.dumps({"options": options, "details": details}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[sys.argv.index("-o") + 1])
