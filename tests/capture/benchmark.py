"""A benchmark as users have them: grpcio, server and clients in one process, on the loopback device.

    benchmark.py PORT CONNECTIONS CALLS BYTES [HOW]

Prints what the client counted, a line of JSON. HOW is an exit code, a signal such as `kill-15`, or `forever`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent import futures

import grpc


def same(data: bytes) -> bytes:
    return data


def main(port: int, connections: int, calls: int, size: int, how: str = "0") -> int:
    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request, same, same)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Bench", {"Echo": handler}),))
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    counted = 0
    while True:
        for _ in range(connections):
            own = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=own) as channel:
                echo = channel.unary_unary("/demo.Bench/Echo", same, same)
                for _ in range(calls):
                    counted += len(echo(bytes(size), timeout=30)) == size
        if how != "forever":
            break
        time.sleep(0.01)
    server.stop(None).wait()
    print(json.dumps({"rpcs": counted, "connections": connections}), flush=True)
    if how.startswith("kill-"):
        os.kill(os.getpid(), int(how.removeprefix("kill-")))
    return int(how)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:5]), *sys.argv[5:6]))
