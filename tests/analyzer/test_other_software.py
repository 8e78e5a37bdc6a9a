"""Captures of clients, servers and proxies in common use: the verdict, the statuses, and what must not be said."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import pytest
from support import RECORDED

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis

WILD = RECORDED / "wild"
HEALTHY: dict[str, Any] = {"healthy": True}
IN_FLIGHT: dict[str, Any] = {
    "verdict": ["deadline-exceeded"],
    "says": ["RST_STREAM CANCEL from the client after its grpc-timeout"],
    "never": ["none failed"],
    "statuses": {"OK": 8, "DEADLINE_EXCEEDED": 6},
}
EXPECTED: dict[str, dict[str, Any]] = {
    "any-bridge": {"verdict": ["deadline-exceeded"], "rpcs": 38, "statuses": {"OK": 34, "DEADLINE_EXCEEDED": 4}},
    "any-bridge-cooked1": {"verdict": ["deadline-exceeded"], "rpcs": 38},
    "any-bridge-one": {"verdict": ["deadline-exceeded"], "rpcs": 38},
    "any-nat": {
        "verdict": ["deadline-exceeded"],
        "says": ["so a NAT translates their addresses: the 38 calls"],
        "never": ["is a proxy"],
        "rpcs": 38,
        "statuses": {"OK": 34, "DEADLINE_EXCEEDED": 4},
    },
    "apache-backend-down": {"verdict": ["proxy-error"], "not": ["stream-timeout"]},
    "apache-proxy-timeout": {
        "verdict": ["proxy-error"],
        "must": ["stream-timeout"],
        "says": ["Look at ProxyTimeout of Apache"],
    },
    "armeria-client-idle": {
        "verdict": ["connection-churn"],
        "says": [r"ClientFactoryBuilder.idleTimeoutMillis \(Armeria\)"],
        "never": ["create one channel and keep", "breaks off"],
    },
    "armeria-header-limit": {
        "verdict": ["connection-closed-early"],
        "says": [r"Header size exceeded max allowed size \(10240\)", "http2MaxHeaderListSize"],
        "never": ["MaxConnectionAge", "create one channel"],
    },
    "armeria-response-limit": {
        "verdict": ["connection-churn"],
        "says": ["GOAWAY INTERNAL_ERROR", "content too large", r"ClientBuilder.maxResponseLength\(n\)"],
        "never": ["create one channel"],
    },
    "armeria-server-timeout": {
        "verdict": ["cancelled"],
        "says": [r"ServerBuilder.requestTimeoutMillis\("],
        "never": ["in the client", "route.timeout"],
        "statuses": {"OK": 6, "CANCELLED": 6},
    },
    "armeria-stream-limit": {"verdict": ["max-concurrent-streams"], "not": ["server-latency"], "statuses": {"OK": 120}},
    "bun-age": {
        "verdict": ["server-latency"],
        "must": ["abrupt-goaway"],
        "never": ["whether the application meant it"],
        "statuses": {"OK": 120, "UNAVAILABLE": 3},
    },
    "bloat-other-server": {
        "not": ["receive-window-stall", "stream-window-stall"],
        "never": ["tcp_rmem"],
    },
    "bloat-same-lossy": {"must": ["network-queueing"], "says": ["with packets queued for up to 610 ms"]},
    "caddy-header-timeout": {
        "verdict": ["proxy-error"],
        "must": ["stream-timeout"],
        "says": ["Look at reverse_proxy transport http response_header_timeout of caddy"],
    },
    "caddy-read-timeout": {
        "verdict": ["stream-timeout"],
        "says": ["Look at reverse_proxy transport http read_timeout of caddy"],
        "never": ["response_header_timeout", "timeouts write"],
    },
    "caddy-write-timeout": {
        "verdict": ["stream-timeout"],
        "says": ["Look at servers timeouts write of caddy"],
        "never": ["envoy", "read_timeout"],
    },
    "connect-go-connect-errors": {"rpcs": 40, "must": ["rpc-errors"], "statuses": {"RESOURCE_EXHAUSTED": 40}},
    "connect-go-early-answer": HEALTHY | {"rpcs": 8, "statuses": {"OK": 8}, "not": ["cancelled"]},
    "connect-go-web": HEALTHY | {"rpcs": 200, "statuses": {"OK": 200}},
    "connect-mixed": HEALTHY | {"rpcs": 300, "statuses": {"OK": 300}},
    "connect-node-aborts": {
        "verdict": ["cancelled"],
        "says": ["by a timer of about 100 ms"],
        "statuses": {"CANCELLED": 16},
    },
    "connect-node-idle": {"verdict": ["connection-churn"], "never": ["create one channel and keep"]},
    "connect-node-pings": {"verdict": ["too-many-pings"], "statuses": {"OK": 3}},
    "connect-node-refused": {
        "verdict": ["max-concurrent-streams", "rpc-errors"],
        "statuses": {"OK": 105, "UNAVAILABLE": 15},
    },
    "connect-node-started": HEALTHY | {"rpcs": 120, "statuses": {"OK": 120}},
    "envoy-connection-idle": {
        "verdict": ["connection-churn"],
        "says": ["max_connection_duration"],
        "never": ["MaxConnectionAge", "create one channel"],
        "statuses": {"OK": 8},
    },
    "envoy-overflow": {
        "verdict": ["rpc-errors"],
        "says": ["a circuit breaker was open. Look at circuit_breakers.thresholds"],
        "statuses": {"OK": 12, "UNAVAILABLE": 52},
    },
    "envoy-retries": {"verdict": ["retry-storm"], "says": ["18 calls caused 72 requests"]},
    "envoy-route-timeout": {
        "verdict": ["rpc-errors"],
        "says": ["the timeout of the route, or of the last of its attempts, passed. Look at route.timeout"],
        "statuses": {"OK": 40, "UNAVAILABLE": 9},
    },
    "envoy-stream-duration": {
        "verdict": ["deadline-exceeded"],
        "says": ["is envoy's: a stream lasted longer than the proxy allows. Look at max_stream_duration"],
        "never": ["reached their deadline", "a longer deadline"],
        "statuses": {"OK": 12, "DEADLINE_EXCEEDED": 6},
    },
    "grpcio-own-deadline": {
        "verdict": ["deadline-exceeded"],
        "says": ["without a grpc-timeout. Look for that timer on server 10.77.0.2, or behind it"],
        "never": ["reached their deadline", "a longer deadline"],
        "statuses": {"OK": 9, "DEADLINE_EXCEEDED": 3},
    },
    "etcd-bigrange": {"never": ["-1 bytes", "of 5 connections"]},
    "etcd-client-killed": {
        "verdict": ["connection-closed-early"],
        "must": ["slow-connect"],
        "not": ["idle-connection-cut"],
        "says": ["It refused the next connection, so it had stopped", "in packet 110: nothing listened there"],
        "never": ["a proxy closed it", "if no server was stopped"],
        "statuses": {"OK": 60, "UNAVAILABLE": 2},
    },
    "etcd-late": HEALTHY,
    "etcd-watch-lease": HEALTHY,
    "ghz-clientpause": {"not": ["loss-recovery"], "must": ["connection-window-stall"]},
    "ghz-lo-c50": {"certain": [], "never": [r"\b1\.65 times"]},
    "ghz-lo-c50x10": {"certain": []},
    # eight requests left together with their resets when the link was back: by the wire they did not last
    "ghz-outage": {
        "verdict": ["loss-recovery"],
        "statuses": {"OK": 388, "DEADLINE_EXCEEDED": 4, "CANCELLED": 8},
        "says": ["No packet of server 10.91.2.2 arrived for 3.26 s"],
    },
    "ghz-plain": HEALTHY | {"rpcs": 2000},
    "goaway-clientdrops": {"verdict": ["connection-closed-early"], "says": ["client's library"]},
    "goaway-graceful": {"not": ["abrupt-goaway", "connection-closed-early", "rpc-errors"]},
    "goaway-low": {"verdict": ["abrupt-goaway"], "never": ["8 RPCs lost"]},
    "grpc-js-keepalive-paused-client": {
        "verdict": ["keepalive-timeout"],
        "says": [r"keepalive.ServerParameters\{Timeout"],
        "never": ["ClientParameters"],
    },
    "grpc-js-upload-drops": {"verdict": ["capture-quality"], "must": ["receive-window-stall"]},
    "grpc-ruby-acks-lost": {
        "verdict": ["loss-recovery"],
        "says": ["No packet of server 10.77.0.2 arrived for 3.11 s"],
    },
    "grpc-ruby-metadata": {"verdict": ["rpc-errors"], "says": ["the metadata of a call was larger than the limit"]},
    "grpcio-age-grace": {
        "verdict": ["rpc-errors"],
        "says": ["grpc.max_connection_age_grace_ms", "5 RPCs ended with an error status right before that"],
        "never": ["no RPC was lost\\."],
    },
    "grpcio-retried-all": {
        "verdict": ["rpc-errors"],
        "says": ["9 RPCs are retries: perhaps no call failed"],
        "statuses": {"OK": 16, "UNAVAILABLE": 9},
    },
    "grpcio-path-held": {
        "verdict": ["network-queueing"],
        "not": ["loss-recovery"],
        "says": ["held all packets for up to 397 ms: find what stopped the path or a host"],
        "never": ["fills the link", "fq_codel"],
    },
    "grpcio-request-lost": {"verdict": ["loss-recovery"], "never": ["waits for the server to send; nothing blocked"]},
    "grpc-go-narrow-uplink": {
        "verdict": ["network-queueing"],
        "not": ["server-concurrency-limit", "server-latency"],
        "never": ["event loop", "what else fills"],
        "statuses": {"OK": 192},
    },
    "grpc-go-uplink-deadline": {
        "verdict": ["network-queueing"],
        "must": ["deadline-exceeded"],
        "says": ["held all packets for up to 395 ms: find what stopped the path or a host"],
        "never": [r"server \d+%"],
    },
    "grpc-go-uplink-full": {
        "verdict": ["network-queueing"],
        "not": ["server-latency"],
        "says": ["what else fills the link"],
        "never": ["trace the handler"],
        "statuses": {"OK": 400},
    },
    "grpcio-uplink-held": {
        "verdict": ["network-queueing"],
        "not": ["server-latency"],
        "says": ["held all packets for up to 299 ms: find what stopped the path or a host"],
        "never": ["trace the handler", "fills the link"],
        "statuses": {"OK": 340},
    },
    "grpcio-snaplen-stopped": {
        "verdict": ["receive-window-stall"],
        "says": [r"blocked by the TCP receive window for 43.4 ms \(41% of RPC time\)"],
    },
    "grpcio-stopped-four": {
        "verdict": ["synchronised-stall"],
        "not": ["network-queueing"],
        "says": ["4 times for 297 ms"],
    },
    "grpcio-stopped-once": {
        "verdict": ["synchronised-stall"],
        "says": ["was unresponsive once for 785 ms, with everything in flight"],
    },
    "nice-grpc-slow-reader": {"verdict": ["stream-window-stall"], "never": ["did not read"]},
    "grpcio-broken-block": {
        "verdict": ["rpc-errors"],
        "not": ["synchronised-stall"],
        "says": ["Client 127.0.0.1 broke HTTP/2 in packet 29 .* before that: look at the HTTP/2 library of client"],
        "statuses": {"OK": 15, "INTERNAL": 12},
    },
    "grpcio-unknown-frame": HEALTHY | {"statuses": {"OK": 24}},
    "grpcio-mtu": {"verdict": ["mtu-black-hole"], "not": ["peer-unreachable"]},
    "grpcio-batch-ids": {"verdict": ["rpc-errors"], "not": ["retry-storm"], "statuses": {"OK": 48, "UNAVAILABLE": 24}},
    "grpcio-concurrency-limit": {
        "verdict": ["rpc-errors"],
        "says": [r"maximum_concurrent_rpcs=n"],
        "statuses": {"OK": 15, "RESOURCE_EXHAUSTED": 33},
    },
    "grpcio-slow-failures": {"verdict": ["rpc-errors"], "never": ["[Ee]nvoy", "a timer", "look at"]},
    "nginx-stopped-backend": {
        "verdict": ["deadline-exceeded"],
        "not": ["synchronised-stall"],
        "never": ["sent nothing", "was paused"],
        "statuses": {"OK": 131, "DEADLINE_EXCEEDED": 9},
    },
    "grpc-go-idle-chat": HEALTHY | {"rpcs": 15, "statuses": {"OK": 15}},
    "grpc-go-long-polls": {
        "not": ["synchronised-stall"],
        "never": ["sent nothing", "was paused"],
        "statuses": {"OK": 84, "DEADLINE_EXCEEDED": 9},
    },
    "grpc-go-slow-deadline": {
        "verdict": ["deadline-exceeded"],
        "not": ["synchronised-stall"],
        "never": ["sent nothing", "was paused"],
        "statuses": {"OK": 140, "DEADLINE_EXCEEDED": 9},
    },
    "grpc-go-stopped-deadline": {
        "verdict": ["deadline-exceeded"],
        "says": ["Server 10.77.0.2 sent nothing for 2.20 s meanwhile: look for what stopped its process"],
    },
    "grpc-go-tls-killed": {
        "verdict": ["slow-connect"],
        "says": ["closed a connection, and then refused new ones for 1.01 s: look for why it stopped"],
        "never": ["Let clients start"],
    },
    "grpc-go-tls-reset": {
        "verdict": ["forged-reset"],
        "says": ["A device on the path sent 2 RSTs in the name of server"],
    },
    "grpc-js-tls-outage": {
        "verdict": ["loss-recovery"],
        "says": ["TCP shows: No packet of server 10.77.0.2 arrived for 3.30 s"],
    },
    "grpc-js-tls-outage-server": {"verdict": ["loss-recovery"], "never": ["No packet of"]},
    "grpcio-tls-client-killed": {"not": ["slow-connect", "forged-reset", "loss-recovery"]},
    "grpc-js-stopped-deadline": {
        "verdict": ["deadline-exceeded"],
        "says": ["Server 10.77.0.2 sent nothing for 1.57 s meanwhile: look for what stopped its process"],
    },
    "grpcio-frozen": {
        "must": ["synchronised-stall"],
        "says": ["sent nothing for 2.25 s meanwhile"],
        "statuses": {"OK": 103, "DEADLINE_EXCEEDED": 6},
    },
    "grpcio-outage": {
        "verdict": ["loss-recovery"],
        "not": ["synchronised-stall", "server-latency"],
        "statuses": {"OK": 100, "DEADLINE_EXCEEDED": 3, "CANCELLED": 6},
        "says": ["No packet of server 10.77.2.1 arrived for 3.18 s"],
    },
    "grpcio-retries": {"verdict": ["retry-storm"], "statuses": {"OK": 20, "UNAVAILABLE": 40}},
    "grpc-go-lock": {"verdict": ["server-concurrency-limit"]},
    "grpc-js-blocked-loop": {"verdict": ["synchronised-stall"]},
    "grpcio-blocked-loop": {"verdict": ["server-concurrency-limit"]},
    "grpcio-window-reopened": {"verdict": ["receive-window-stall"], "says": ["for 1.67 s"], "not": ["hung-rpc"]},
    "grpcio-window-shut": {
        "verdict": ["receive-window-stall"],
        "says": ["Server 10.77.0.2 did not read its socket for 3.51 s", "whether it is stopped"],
        "not": ["hung-rpc"],
    },
    "grpcio-workers": {"verdict": ["server-concurrency-limit"]},
    "grpc-java-age-grace": {
        "verdict": ["connection-closed-early"],
        "says": [r"maximum age: give open calls more time .*NettyServerBuilder.maxConnectionAgeGrace"],
        "never": ["keepalive_requests", "requests each"],
        "statuses": {"OK": 144, "UNAVAILABLE": 16},
    },
    "grpc-java-limit-cold": {
        "verdict": ["max-concurrent-streams"],
        "says": ["allows 12 streams at once", "if it has more than 12 callers"],
        "certain": ["server-latency"],
        "statuses": {"OK": 360},
    },
    "grpc-java-shutdown-now": {
        "verdict": ["connect-failure"],
        "must": ["cancelled"],
        "says": ["its shutdown ended them after its GOAWAY"],
        "never": ["MaxConnectionAge", "keepalive_requests", "application meant it"],
        "statuses": {"OK": 20, "CANCELLED": 4},
    },
    "grpc-java-one-thread": {"verdict": ["server-concurrency-limit"], "statuses": {"OK": 96}},
    "grpc-go-nagle-ping": {
        "verdict": ["delayed-ack-nagle"],
        "says": [r"RPCs lost 33\d ms", "server 127.0.0.1 held back a small segment 9 times for a delayed ACK"],
    },
    "grpc-go-nagle-slow-handler": {"not": ["delayed-ack-nagle"], "says": ["100% of the RPC time is in server"]},
    "grpc-go-slow-handler": {"never": ["Nagle"], "says": ["100% of the RPC time is in server"]},
    "grpc-go-open-request": {
        "verdict": ["deadline-exceeded"],
        "says": ["Their time by cause: client 99%"],
        "never": ["cancellation in the handler"],
        "statuses": {"DEADLINE_EXCEEDED": 3},
    },
    "grpc-js-fast-reader": {
        "verdict": ["connection-window-stall"],
        "says": ["enlarge stream and connection window on client"],
        "never": ["reads slowly"],
    },
    "grpc-js-slow-reader": {
        "verdict": ["stream-window-stall"],
        "must": ["connection-window-stall"],
        "says": ["reads slowly, 1.80 MB/s where the window carries 6.32 MB/s"],
        "never": ["enlarge (the|stream)", "too small"],
    },
    "grpc-js-two-uploads": {"verdict": ["connection-window-stall"]},
    "grpcio-send-limit": {
        "verdict": ["rpc-errors"],
        "says": ["a message was longer than its sender may send. Look at grpc.max_send_message_length"],
        "statuses": {"RESOURCE_EXHAUSTED": 8},
    },
    "grpcio-watch-deadline": {
        "verdict": ["deadline-exceeded"],
        "says": ["Their time by cause: server 99%"],
        "never": [r"client \d+%"],
        "statuses": {"DEADLINE_EXCEEDED": 6},
    },
    "nginx-backend-timeout": {
        "verdict": ["stream-timeout"],
        "says": ["Look at grpc_read_timeout of nginx"],
        "never": ["client_body_timeout"],
    },
    "nginx-body-timeout": {
        "verdict": ["stream-timeout"],
        "says": ["Look at client_body_timeout of nginx"],
        "never": ["grpc_read_timeout"],
    },
    "nginx-fast-reader": {
        "verdict": ["stream-window-stall"],
        "says": ["enlarge the window on client"],
        "never": ["reads slowly"],
    },
    "nginx-slow-reader": {
        "verdict": ["stream-window-stall"],
        "says": ["reads slowly", "39 times"],
        "never": ["enlarge the window on client", "too small"],
    },
    "grpclib-nagle": {"verdict": ["delayed-ack-nagle"], "statuses": {"OK": 60}},
    "grpclib-deadline": {
        "verdict": ["deadline-exceeded"],
        "not": ["rpc-errors", "cancelled"],
        "statuses": {"DEADLINE_EXCEEDED": 5, "OK": 15},
    },
    "grpclib-slowreader2": {"says": ["reads slowly"]},
    "grpclib-tail": {"verdict": ["server-latency"]},
    "half-open-nodeadline": {"verdict": ["peer-unreachable"], "says": ["check that keepalive"], "never": ["at most"]},
    "grpclib-upload": {"verdict": ["initial-congestion-window"]},
    "h2-metadata": {
        "verdict": ["connection-closed-early"],
        "says": ["GOAWAY ENHANCE_YOUR_CALM", "200,231 bytes of metadata in 13 frames"],
        "never": ["refused the response", "See the sender's log"],
        "not": ["cancelled"],
    },
    "grpc-js-slow-in-step": {"verdict": ["deadline-exceeded"], "never": ["look for what stopped its process"]},
    "grpc-js-stopped-in-step": {
        "verdict": ["deadline-exceeded"],
        "says": ["Server 10.77.0.2 sent nothing for 1.70 s meanwhile: look for what stopped its process"],
        "statuses": {"OK": 54, "DEADLINE_EXCEEDED": 9},
    },
    "grpc-js-stopped-three": {"verdict": ["synchronised-stall"], "says": ["sent nothing once for 1.21 s"]},
    "grpcio-stopped-three": {"verdict": ["synchronised-stall"], "says": ["sent nothing once for 1.20 s"]},
    "grpcio-three-slow": {"not": ["synchronised-stall"], "never": ["sent nothing once"]},
    "grpc-js-discards": {
        "verdict": ["connection-closed-early"],
        "says": ["70,[0-9]+ bytes of metadata in 6 frames", "probably more than client 127.0.0.1 accepts"],
        "never": ["look at the HTTP/2 library", "none failed"],
        "statuses": {"OK": 2},
    },
    "grpcio-servers-alike": {"not": ["server-latency"]},
    "grpcio-servers-one-slow": {"verdict": ["server-latency"], "says": ["Server 127.0.0.1:6022 takes 31.6 ms per RPC"]},
    "grpc-js-pool-cold": {"verdict": ["server-concurrency-limit"], "says": ["work on 4 calls of /demo.S/Call at once"]},
    "grpcio-rate-limit": {
        "verdict": ["server-concurrency-limit"],
        "says": ["A limit of 20 calls per 40[0-9] ms in the server does that, and so does a queue"],
        "statuses": {"OK": 200},
    },
    "grpcio-streams-beside": {"never": ["occupy all workers"], "not": ["deadline-exceeded"]},
    "grpcio-three-workers-held": {
        "verdict": ["deadline-exceeded"],
        "says": ["3 calls of /demo.Orders/Subscribe seem to occupy all workers"],
        "statuses": {"OK": 5, "DEADLINE_EXCEEDED": 6, "CANCELLED": 3},
    },
    "grpcio-workers-held": {
        "verdict": ["deadline-exceeded"],
        "says": [
            "5 of 11 RPCs .* reached their deadline of about 1.01 s",
            "4 calls of /grpc.health.v1.Health/Watch seem to occupy all workers",
            "4 streams had delivered messages until their deadline of 9.00 s",
        ],
        "never": ["cancellation in the handler", "1.00 s to 9.00 s"],
        "statuses": {"OK": 2, "DEADLINE_EXCEEDED": 9},
    },
    "tonic-rate-limit": {
        "verdict": ["deadline-exceeded"],
        "says": ["A limit of 50 calls per second, or a queue drained in batches"],
        "never": ["cancellation in the handler"],
        "statuses": {"OK": 195, "DEADLINE_EXCEEDED": 104, "CANCELLED": 1},
    },
    "grpc-js-rate-limit": {"never": ["seems to work on"], "not": ["server-latency"]},
    "haproxy-header-bytes": {
        "verdict": ["connection-closed-early"],
        "says": ["GOAWAY INTERNAL_ERROR", r"raise its limit \(tune.bufsize n\)"],
    },
    "haproxy-header-fields": {
        "verdict": ["rpc-errors"],
        "says": ["look at tune.http.maxhdr"],
        "statuses": {"UNAVAILABLE": 8},
    },
    "haproxy-header-fields-ok": HEALTHY | {"statuses": {"OK": 8}},
    "haproxy-idle": {
        "verdict": ["connection-churn"],
        "says": ["timeout http-keep-alive", "ended 5 of the connections, each about 502 ms after its last RPC"],
        "never": ["ended each one", "MaxConnectionIdle"],
    },
    "haproxy-no-backend": {
        "verdict": ["deadline-exceeded"],
        "says": ["the log of haproxy", "which backend it waited for"],
        "never": ["cancellation in the handler"],
        "statuses": {"DEADLINE_EXCEEDED": 8},
    },
    "haproxy-streamtimeout": {
        "verdict": ["stream-timeout"],
        "says": ["END_STREAM without trailers"],
        "never": ["trailers with status UNKNOWN"],
    },
    "hedging": {"not": ["cancelled", "retry-storm", "rpc-errors"], "never": ["a timer"]},
    "hop-backend-slow-a": {"verdict": ["server-latency"], "rpcs": 191, "says": ["server 10.78.238.2", "is a proxy"]},
    "hop-buffering-a": {
        "verdict": [None],
        "rpcs": 12,
        "says": [
            "held the request for 1.62 s",
            "Calls may take as long without the buffer: the client sends for 1.62 s",
        ],
    },
    "hop-proxy-slow-a": {
        "verdict": [None],
        "rpcs": 177,
        "says": ["held the request for 117 ms .*25 calls per second"],
    },
    "hyper-rst-noerror": {"verdict": ["lost-answer"], "statuses": {"OK": 8, "INTERNAL": 4}},
    "hypercorn-requests": {
        "verdict": ["abrupt-goaway"],
        "must": ["connection-closed-early"],
        "says": [r"after exactly 21 requests each.*raise that limit \(keep_alive_max_requests = n\)"],
        "never": ["broke the protocol", "Shut down in two steps"],
        "rpcs": 80,
    },
    "hypercorn-idle": {
        "verdict": ["connection-churn"],
        "says": ["closed 6 idle connections without GOAWAY, by FIN, each about 502 ms after", "keep_alive_timeout"],
        "never": ["Pekko", "MaxConnection", "on their age"],
        "statuses": {"OK": 6},
    },
    "hypercorn-stopped": {
        "verdict": ["connection-closed-early"],
        "says": ["It refused the next connection, so it had stopped"],
        "never": ["a proxy closed it", "if no server was stopped"],
        "statuses": {"OK": 10, "UNAVAILABLE": 3},
    },
    "hypercorn-stream-limit": {
        "verdict": ["connection-closed-early"],
        "says": ["allows 2 streams at once, and client 10.77.0.1 had 6 open, all opened before it had"],
        "never": ["broke the protocol", "GRPC_ARG_MAX_CONCURRENT_STREAMS"],
        "rpcs": 12,
    },
    "hypercorn-stream-limit-node": {
        "verdict": ["connection-closed-early"],
        "says": ["allows 4 streams at once, and client 10.77.0.1 had 9 open"],
        "never": ["broke the protocol"],
        "statuses": {"UNAVAILABLE": 9},
    },
    "hypercorn-streams-ok": {"not": ["connection-closed-early", "max-concurrent-streams"], "statuses": {"OK": 27}},
    "lb-slow-backend-a": {"verdict": ["server-latency"], "must": ["server-latency"]},
    "mtu-blackhole": {"verdict": ["mtu-black-hole"], "never": ["are missing \\("]},
    "mtu-blackhole-server": {"verdict": ["mtu-black-hole"]},
    "http-write-timeout": {"verdict": ["stream-timeout"], "never": ["without a packet"], "statuses": {"INTERNAL": 5}},
    "nghttpx": HEALTHY | {"rpcs": 800},
    "nghttpx-backendkill": {
        "verdict": ["proxy-error"],
        "says": ["HTTP 502", "nghttpx"],
        "statuses": {"OK": 116, "INTERNAL": 3, "UNAVAILABLE": 181},
    },
    "nginx-bothlegs-any": {"verdict": ["max-concurrent-streams"], "rpcs": 200, "says": ["is a proxy"]},
    "nginx-goaway50": {"says": ["50 requests", "keepalive_requests", "6 calls were refused"]},
    "nghttp2-metadata": {
        "verdict": ["connection-closed-early"],
        "says": [
            "GOAWAY COMPRESSION_ERROR",
            "70,231 bytes of metadata in 5 frames",
            "raise its limit",
            "unexplained 100%",
        ],
        "never": ["look at the HTTP/2 library of", "refused the response", r"server \d+%"],
        "statuses": {"DEADLINE_EXCEEDED": 6},
    },
    "nghttpx-header-bytes": {
        "verdict": ["connection-closed-early"],
        "says": ["70,228 bytes of metadata in 5 frames", "4 of 10 RPCs got an HTTP status from nghttpx, all 431"],
        "never": [r"large_client_header_buffers"],
        "statuses": {"OK": 2, "UNAVAILABLE": 4, "UNKNOWN": 4},
    },
    "nginx-header-bytes": {
        "verdict": ["connection-closed-early"],
        "says": ["GOAWAY ENHANCE_YOUR_CALM", r"in 1 frame for 1 request", r"\(large_client_header_buffers\)"],
    },
    "nginx-http-statuses": {
        "verdict": ["proxy-error"],
        "says": ["503", "401", "302", "nginx/1.22.1"],
        "statuses": {"UNAVAILABLE": 3, "UNAUTHENTICATED": 3, "UNKNOWN": 3},
    },
    "nginx-mcs4": {"verdict": ["max-concurrent-streams"], "says": ["http2_max_concurrent_streams"]},
    "nginx-readtimeout": {
        "verdict": ["proxy-error", "stream-timeout"],
        "says": ["HTTP 504", "nginx/1.22.1", "grpc_read_timeout"],
        "statuses": {"UNAVAILABLE": 40},
    },
    "nginx-tls": {"statuses": {"OK": 54, "NOT_FOUND": 6}},
    "okhttp-win64k": {"says": ["OkHttpChannelBuilder"], "never": ["NettyChannelBuilder"]},
    "otlp-slow": {"verdict": ["server-latency"]},
    "otlp-unavail": {"must": ["rpc-errors"], "statuses": {"OK": 9, "UNAVAILABLE": 3}},
    "curl-stopped": {"never": ["find that timer"], "says": ["Check whether its program ended"]},
    "curl-timer": {
        "verdict": ["connection-closed-early"],
        "says": ["Clients closed 7 connections about 60[01] ms after", "at different moments: find that timer"],
        "never": ["retryPolicy"],
    },
    "httpx-timeout": {
        "verdict": ["connection-closed-early"],
        "says": ["Clients closed 6 connections about 50[01] ms after", "find that timer in the client"],
    },
    "dubbo-deadline": {
        "verdict": ["deadline-exceeded"],
        "says": ["6 of 8 RPCs were answered after their deadline of 120 ms", "had given up without telling the server"],
    },
    "go-begun-before": {"not": ["stream-timeout"], "statuses": {"not_seen": 9}},
    "h2-window-shut": {
        "verdict": ["receive-window-stall"],
        "says": ["Client 10.77.0.1 did not read its socket for 1.94 s"],
        "statuses": {"OK": 3, "DEADLINE_EXCEEDED": 1},
    },
    "h2load-compression-error": {
        "verdict": ["connection-closed-early"],
        "says": [
            "server 127.0.0.1 sent a header block that it could not decode",
            r"The packets bear it out: server 127.0.0.1 broke HTTP/2 in packet 30 \(HPACK",
        ],
    },
    "h2o-no-trailers": {"verdict": ["rpc-errors"], "says": ["all by END_STREAM without trailers"]},
    "h2o-proxy-timeout": {
        "verdict": ["proxy-error"],
        "must": ["stream-timeout"],
        "certain": ["proxy-error"],
        "says": ["may have ended them", "proxy.timeout.io of h2o"],
    },
    "node-http2-deadline": {"verdict": ["deadline-exceeded"], "statuses": {"DEADLINE_EXCEEDED": 8}},
    "node-http2-nagle": {"verdict": ["delayed-ack-nagle"], "statuses": {"OK": 20}},
    "node-http2-nagle-far": {"verdict": ["delayed-ack-nagle"], "statuses": {"OK": 20}},
    "node-http2-stream-limit": {"must": ["max-concurrent-streams"], "says": ["had 4 open before it knew the limit"]},
    "node-http2-two-callers": {"says": ["RPCs may queue"], "never": ["RPCs queue for", "had been waiting"]},
    "pekko-idle": {
        "says": ["closed 5 idle connections without GOAWAY, by RST, each about 650 ms after the last bytes: an idle t"],
        "not": ["idle-connection-cut", "forged-reset"],
        "never": ["MaxConnection"],
        "statuses": {"OK": 5},
    },
    "grpcio-device-idle": {
        "verdict": ["connection-churn"],
        "says": ["server 10.77.0.2, or a device on the way, ends", "idle timeouts of proxies, NAT and firewalls"],
        "never": ["Pekko", "erver 10.77.0.2 (ends|closed)"],
        "statuses": {"OK": 5},
    },
    "grpcio-failing-busy": {
        "verdict": ["rpc-errors"],
        "not": ["retry-storm"],
        "never": ["the same request came again"],
        "statuses": {"OK": 43, "UNAVAILABLE": 21},
    },
    "grpcio-killed-idle": {"never": ["an idle timeout"], "statuses": {"OK": 4}},
    "pekko-idle-race": {
        "verdict": ["idle-connection-cut"],
        "says": ["the next request crossed the server.s RST", "a RST met the first", "pekko.http.server.idle-timeout"],
        "never": ["RST answered", "keepalive PINGs must come"],
        "statuses": {"OK": 10, "UNAVAILABLE": 2},
    },
    "pekko-terminated": {
        "must": ["connection-closed-early"],
        "says": ["Give the shutdown more time.", r"Http.ServerBinding.terminate\(hardDeadline\)"],
        "never": ["MaxConnectionAge"],
        "statuses": {"OK": 5, "UNAVAILABLE": 2},
    },
    "pekko-stream-limit": {
        "verdict": ["slow-connect"],
        "must": ["max-concurrent-streams"],
        "says": ["pekko.http.server.http2.max-concurrent-streams = n"],
        "statuses": {"OK": 64},
    },
    "pekko-upload-window": {
        "verdict": ["connection-window-stall"],
        "says": ["pekko.http.server.http2.incoming-connection-level-buffer-size = n"],
        "never": ["incoming-stream-level"],
        "statuses": {"OK": 3},
    },
    "purerpc-raise": {
        "verdict": ["cancelled"],
        "says": ["the server ended them, though their clients had neither reset them nor set a deadline"],
        "never": ["none failed"],
    },
    "plateau": {"verdict": ["server-concurrency-limit"]},
    "plateau-none-control": {"not": ["server-concurrency-limit"]},
    "helidon-nagle": {
        "verdict": ["delayed-ack-nagle"],
        "says": [r"server 10.99.0.2 held back a small segment 91 times \(and client 10.99.0.1 16 times\)"],
        "statuses": {"OK": 100},
    },
    # what the clients' callers saw: OK 8, DEADLINE_EXCEEDED 6
    "grpc-go-deadline-in-flight": IN_FLIGHT,
    "grpc-js-deadline-in-flight": IN_FLIGHT,
    "grpcio-deadline-in-flight": IN_FLIGHT,
    "grpc-js-message-refused": HEALTHY | {"statuses": {"OK": 7}},
    "grpcio-late-acks": {
        "not": ["loss-recovery", "network-queueing", "server-latency"],
        "never": ["find where packets are dropped"],
    },
    "grpcio-lost-requests": {"verdict": ["loss-recovery"], "says": ["find where packets are dropped"]},
    "grpcio-message-refused": {
        "verdict": ["cancelled"],
        "says": ["refused the response of 6 of 10 RPCs with ENHANCE_YOUR_CALM", r"20\.[34] ms after the complete"],
        "never": ["a timer", "none failed"],
        "statuses": {"OK": 4, "CANCELLED": 6},
    },
    "grpcio-metadata-refused": {
        "verdict": ["cancelled"],
        "says": ["refused the response of 8 of 10 RPCs with ENHANCE_YOUR_CALM", "grpc.max_metadata_size"],
        "statuses": {"OK": 2, "CANCELLED": 8},
    },
    "grpc-java-okhttp-age": {
        "verdict": ["connection-closed-early"],
        "says": ["after exactly 12 requests each and at an age of about"],
        "never": ["INTERNAL_ERROR", "13 requests"],
    },
    "grpc-go-syns-dropped": {
        "verdict": ["connect-failure"],
        "says": ["the SYNs reached the capture point at that host, so look at its firewall and its queue"],
        "never": ["check firewalls, routes"],
    },
    "grpc-js-accept-queue-full": {
        "verdict": ["slow-connect"],
        "says": [
            "They reached the capture point at that host: look at its queue of connections",
            "TcpExtListenOverflows",
        ],
        "never": ["on the path"],
    },
    "grpc-go-server-input-dropped": {
        "verdict": ["loss-recovery"],
        "says": ["packets to it reached the capture point there, so look at its firewall"],
        "never": ["what cut the path"],
    },
    "grpc-js-age-grace": {
        "verdict": ["connection-closed-early"],
        "not": ["stream-timeout"],
        "says": ["at an age of about 1.54 s", "maximum age: give open calls more time before the server closes\\."],
        "never": ["requests each"],
    },
    "grpc-js-app-hedges": {
        "not": ["cancelled"],
        "says": ["drop the slower one"],
        "never": ["by a timer of"],
        "statuses": {"OK": 60, "CANCELLED": 15},
    },
    "grpc-go-input-dropped": {
        "verdict": ["loss-recovery"],
        "says": ["Client 10.77.0.1 acknowledged nothing that server 10.77.0.2 sent", "look at its firewall"],
        "never": ["none failed", "firewalls, NAT and routes"],
        "statuses": {"OK": 4, "DEADLINE_EXCEEDED": 1},
    },
    "grpc-js-downlink-dropped": {
        "verdict": ["loss-recovery"],
        "says": ["Client 10.77.0.1 acknowledged nothing that server 10.77.0.2 sent", "firewalls, NAT and routes"],
        "never": ["tcp_congestion_control", "look at its firewall"],
        "statuses": {"OK": 39, "not_seen": 5},
    },
    "grpc-go-rejected-midway": {
        "verdict": ["loss-recovery"],
        "says": [r"find out why 10.88.2.2 reports port unreachable \(ICMP type 3 code 3\)", "a rule rejects them"],
        "never": ["drops that direction"],
    },
    "grpc-go-firewall-forgot": {"verdict": ["idle-connection-cut"], "says": ["or server 10.88.2.2 was gone"]},
    "grpc-js-firewall-reset": {
        "verdict": ["idle-connection-cut"],
        "says": ["a RST answered the first packet after it"],
        "statuses": {"OK": 7, "UNAVAILABLE": 1},
    },
    "grpc-js-host-gone": {
        "verdict": ["peer-unreachable"],
        "not": ["loss-recovery"],
        "says": ["is not heard on a new connection either"],
    },
    "grpc-js-downlink-restored": {"verdict": ["loss-recovery"], "never": ["acknowledged nothing"]},
    "grpc-js-grace": {"not": ["stream-timeout"], "says": ["give that more time"]},
    "grpc-js-input-dropped": {
        "verdict": ["loss-recovery"],
        "says": ["1 with unknown status", "look at its firewall"],
        "never": ["none failed"],
        "statuses": {"OK": 4, "not_seen": 1},
    },
    "grpc-js-idle-drop": {"not": ["loss-recovery"], "statuses": {"OK": 80}},
    "grpc-js-one-blocked-server": {
        "verdict": ["server-latency"],
        "says": ["The 3 longest calls were at server 10.9.0.3."],
    },
    "grpc-js-quits": {"not": ["cancelled"], "says": ["12 response messages"], "never": ["by a timer of"]},
    # the requests had begun no farther apart than they were answered: handlers may look the same
    "grpc-js-stalls-without-pings": {"not": ["synchronised-stall"]},
    "grpcio-input-restored": {
        "verdict": ["loss-recovery"],
        "says": ["none failed"],
        "never": ["look at its firewall"],
        "statuses": {"OK": 9},
    },
    "grpc-js-syn-acks-lost": {
        "verdict": ["slow-connect"],
        "says": ["the server's SYN-ACKs were not acknowledged at first"],
        "never": ["did not answer", "not answered", "queue of connections"],
    },
    "grpcio-goaway-cancelled": {"statuses": {"CANCELLED": 1}},
    "grpcio-goaway-unprocessed": {"not": ["cancelled"], "statuses": {"UNAVAILABLE": 2}},
    "grpcio-uplink-keepalive": {
        "verdict": ["loss-recovery"],
        "says": ["Server 10.77.0.2 acknowledged nothing that client 10.77.0.1 sent", "drops that direction alone"],
        "statuses": {"OK": 3, "DEADLINE_EXCEEDED": 1},
    },
    "grpcio-uplink-keepalive-cut": {
        "verdict": ["loss-recovery"],
        "says": ["No packet of server 10.77.0.2 arrived for 12.3 s", "look for what cut the path or stopped that host"],
        "never": ["acknowledged nothing"],
    },
    "grpc-js-tls-slow": {"not": ["synchronised-stall"]},
    "grpcio-tls-path-held": {"not": ["synchronised-stall"]},
    "grpcio-tls-stopped": {
        "verdict": ["synchronised-stall"],
        "says": ["TCP shows: Server 10.77.0.2 sent nothing on 4 TLS connections for 1.40 s, and then on all of them"],
    },
    "grpcio-uplink-dropped": {
        "verdict": ["loss-recovery"],
        "says": ["Server 10.77.0.2 acknowledged nothing that client 10.77.0.1 sent", "drops that direction alone"],
        "never": ["tcp_congestion_control"],
    },
    "grpclib-dead-deadline": {
        "verdict": ["peer-unreachable"],
        "says": ["3 RPCs waited \\(4.50 s"],
    },
    "socat-backend-gone": {
        "verdict": ["connect-failure"],
        "says": ["it served RPCs before", "a proxy without a backend does that, too"],
        "never": ["expects TLS", "for a cleartext port"],
        "statuses": {"OK": 48},
    },
    "socat-nagle": {"not": ["synchronised-stall"], "never": ["unresponsive"], "statuses": {"OK": 60}},
    "socat-nodelay": HEALTHY | {"statuses": {"OK": 60}},
    "tonic-client-timeout": {
        "verdict": ["cancelled"],
        "says": [r"Endpoint::timeout\("],
        "never": ["route.timeout"],
        "statuses": {"OK": 12, "CANCELLED": 12},
    },
    "tonic-encoding-limit": {
        "verdict": ["rpc-errors"],
        "says": [r"longer than its sender may send. Look at max_encoding_message_size\(n\)"],
        "never": ["max_decoding_message_size"],
        "statuses": {"OK": 8, "OUT_OF_RANGE": 8},
    },
    "connect-web-deadline": {
        "verdict": ["deadline-exceeded"],
        "says": ["the client's close after its grpc-timeout"],
        "never": ["No transport problem", "without GOAWAY"],
        "statuses": {"OK": 10, "DEADLINE_EXCEEDED": 3, "not_seen": 3},
    },
    "connect-web-get": {"verdict": ["rpc-errors"], "rpcs": 30, "statuses": {"OK": 18, "NOT_FOUND": 12}},
    "dubbo-response-limit": {
        "says": [r"dubbo\.protocol\.triple\.max-response-body-size"],
        "statuses": {"UNKNOWN": 2},
    },
    "dubbo-stop": {
        "verdict": ["abrupt-goaway"],
        "never": ["MaxConnectionAge"],
        "statuses": {"OK": 68, "UNAVAILABLE": 4},
    },
    "grpcwebproxy-deadline": {
        "verdict": ["connection-closed-early"],
        "never": ["broke off", "without trailers", "No transport problem"],
        "statuses": {"DEADLINE_EXCEEDED": 2, "not_seen": 4},
    },
    "sonora-any-type": HEALTHY | {"rpcs": 8, "statuses": {"OK": 8}},
    "tonic-flow-forgotten": {
        "verdict": ["peer-unreachable"],
        "says": ["answered new connections", "at most 20.6 s", "opened a new connection 1.70 s after"],
        "never": ["was unreachable", "check that keepalive is set"],
    },
    "tonic-gzip-unknown": {
        "verdict": ["rpc-errors"],
        "says": [r"accept_compressed\(", "does not know the compression"],
        "statuses": {"UNIMPLEMENTED": 5},
    },
    "tonic-keepalive-paused-client": {
        "verdict": ["keepalive-timeout"],
        "says": ["Server::http2_keepalive_timeout"],
        "never": ["Endpoint::keep_alive_timeout"],
    },
    "tonic-late-goodbye": {
        "verdict": ["loss-recovery"],
        "not": ["keepalive-timeout"],
        "never": ["sooner than the round trip"],
    },
    "tonic-load-shed": {
        "verdict": ["rpc-errors"],
        "says": [r"Server::concurrency_limit_per_connection\(n\)"],
        "statuses": {"OK": 8, "RESOURCE_EXHAUSTED": 56},
    },
    "tonic-paused-keepalive": {"verdict": ["keepalive-timeout"], "says": ["blocked event loop there"]},
    "tonic-rebooted": {
        "verdict": ["idle-connection-cut"],
        "says": ["look for why it had stopped"],
        "never": ["must come more often"],
    },
    "tonic-slow-method": HEALTHY,
    "tonic-stopped": {"verdict": ["synchronised-stall"], "says": ["sent nothing 4 times"]},
    "kitex-deadline": {"verdict": ["deadline-exceeded"], "not": ["cancelled"], "statuses": {"DEADLINE_EXCEEDED": 20}},
    "kitex-grpc-go-deadline": {"verdict": ["deadline-exceeded"], "statuses": {"DEADLINE_EXCEEDED": 19, "CANCELLED": 1}},
    "vertx-deadline": {"says": ["answered after their deadline"], "never": ["got no response"], "statuses": {"OK": 15}},
    "vertx-kitex-deadline": {"verdict": ["rpc-errors"], "never": ["got no response"], "statuses": {"INTERNAL": 15}},
    "retry-storm": {"verdict": ["retry-storm"], "says": ["45 calls caused 225 requests"]},
    "rst-noerror": HEALTHY | {"statuses": {"OK": 30}},
    "tonic-killed": {
        "verdict": ["slow-connect"],
        "says": ["refused new ones for 1.00 s: look for why it stopped"],
        "never": ["when the server listens"],
    },
    "tonic-limit": {"verdict": ["server-concurrency-limit"], "statuses": {"OK": 64}},
    "tonic-server-timeout": {"verdict": ["cancelled"], "never": ["in the client"], "statuses": {"CANCELLED": 12}},
    "tomcat-overhead": {
        "verdict": ["connection-closed-early"],
        "not": ["too-many-pings"],
        "says": ["Tomcat", r"setOverheadDataThreshold\(0\)", "Server 10.77.0.2 ended 20 of the connections"],
        "never": ["MaxConnectionAge", "GracefulStop", "create one channel"],
    },
    "web-http1": {
        "verdict": ["rpc-errors"],
        "must": ["proxy-error"],
        "not": ["delayed-ack-nagle"],
        "says": ["3 of 45 RPCs got an HTTP status from web-demo/1.0"],
        "statuses": {"OK": 37, "NOT_FOUND": 3, "UNIMPLEMENTED": 2, "UNAVAILABLE": 3},
    },
    "web-http1-nagle": {"verdict": ["delayed-ack-nagle"], "statuses": {"OK": 40}},
    "envoy-attempt-timeout": {
        "verdict": ["rpc-errors"],
        "says": ["or of the last of its attempts", "retry_policy.per_try_timeout"],
        "statuses": {"UNAVAILABLE": 12},
    },
    "envoy-requests-back": {
        "verdict": ["connection-churn"],
        "says": ["each carried 3 RPCs", "max_requests_per_connection"],
        "never": ["grpc.NewClient"],
        "statuses": {"OK": 90},
    },
    "etcd-compacted": {"says": ["OUT_OF_RANGE", "--auto-compaction-retention"]},
    "etcd-quota": {
        "verdict": ["rpc-errors"],
        "says": ["is etcd.s: its database has reached the quota", "--quota-backend-bytes"],
        "statuses": {"OK": 4, "RESOURCE_EXHAUSTED": 4},
    },
    "ghz-deadline-round-trip": {
        "verdict": ["deadline-exceeded"],
        "says": ["deadline is shorter than the fastest round trip, 80.9 ms"],
        "never": ["before raising", "ctx.Done"],
    },
    "grpc-go-deadline-far": {
        "verdict": ["deadline-exceeded"],
        "never": ["shorter than the fastest round trip"],
        "statuses": {"DEADLINE_EXCEEDED": 15},
    },
    "grpc-go-idle-timeout": {
        "verdict": ["connection-churn"],
        "says": ["ends them about 301 ms after a call", r"grpc.WithIdleTimeout \(grpc-go\)"],
        "statuses": {"OK": 6},
    },
    "grpc-go-narrow-upload": {
        "verdict": ["network-queueing"],
        "says": ["70% of the RPC time is transmission: send fewer bytes"],
        "statuses": {"OK": 3},
    },
    "grpc-go-upload-fast": {"never": ["is transmission"], "statuses": {"OK": 3}},
    "grpcio-health-probes": HEALTHY | {"says": ["All are health checks"], "statuses": {"OK": 10}},
    "h2-pending-open": {
        "verdict": ["flow-control-deadlock"],
        "says": ["although the windows are open", "h2 before 0.4.13", "at most 100 calls"],
        "never": ["in vain", "whether its application reads"],
    },
    "haproxy-send-proxy": HEALTHY | {"rpcs": 40, "statuses": {"OK": 40}},
    "haproxy-send-proxy-v2": HEALTHY | {"rpcs": 40, "statuses": {"OK": 40}},
    "nginx-keepalive-back": HEALTHY | {"rpcs": 60, "statuses": {"OK": 60}},
    "nginx-no-keepalive-back": {
        "verdict": ["connection-churn"],
        "says": ["keepalive n; in the upstream block"],
        "never": ["create one channel", "grpc.NewClient"],
        "statuses": {"OK": 60},
    },
    "server-only-max-age": {
        "verdict": ["capture-quality"],
        "says": ["no data from the client", "`src port N`", "max_age", "The server ended 3 connections gracefully"],
        "never": ["`dst port N`", "is unresponsive"],
        "statuses": {"not_seen": 3},
    },
    "snaplen-96-retries": {"rpcs": 31, "statuses": {"not_seen": 31}, "healthy": True},
    "socat-far-client": {"not": ["synchronised-stall"], "never": ["unresponsive"], "statuses": {"OK": 75}},
    "temporal-begun-late": {
        "verdict": ["rpc-errors"],
        "says": [
            "15 of 18 RPCs ended without a response message, most probably with an error",
            "or reached their deadline",
        ],
        "certain": [],
        "statuses": {"not_seen": 18},
    },
    "tinyproxy-connect": {
        "verdict": ["delayed-ack-nagle"],
        "says": ["TCP_NODELAY on server 10.89.1.254"],
        "statuses": {"OK": 60},
    },
    "tinyproxy-connect-server": {"not": ["synchronised-stall"], "never": ["unresponsive"], "statuses": {"OK": 60}},
}
"""By capture. `statuses` has all that are not zero; `certain` the grave findings that may have high confidence."""


def analysis_of(name: str) -> Analysis:
    keys = WILD / f"{name}.keys"
    (file,) = WILD.glob(f"{name}.pcap*")
    try:
        return analyze([str(file)], keylog=keys.read_bytes() if keys.is_file() else None)
    except NoGrpcError as error:
        assert error.analysis is not None
        return error.analysis


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_capture_gives(name: str) -> None:
    expected, analysis = EXPECTED[name], analysis_of(name)
    grave = {finding.id for finding in analysis.findings if finding.severity != "info"}
    text = msgspec.json.encode([analysis.verdict, analysis.findings, analysis.quality]).decode()
    statuses: Counter[str] = Counter()
    for method in analysis.methods:
        statuses.update({status: n for status, n in method.statuses.items() if n})
    if expected.get("healthy"):
        assert grave <= {"capture-quality"}
    assert set(expected.get("must", ())) <= grave
    assert not set(expected.get("not", ())) & grave
    certain = {finding.id for finding in analysis.findings if finding.confidence == "high" and finding.id in grave}
    assert certain <= set(expected.get("certain", certain))
    assert analysis.verdict.finding in expected.get("verdict", [analysis.verdict.finding])
    assert [pattern for pattern in expected.get("says", ()) if not re.search(pattern, text)] == []
    assert [pattern for pattern in expected.get("never", ()) if re.search(pattern, text)] == []
    assert analysis.totals.rpcs == expected.get("rpcs", analysis.totals.rpcs)
    assert statuses == expected.get("statuses", statuses)


def test_behind_cut_header_blocks_one_method_is_one_row() -> None:
    (method,) = analysis_of("snaplen-96-retries").methods
    assert (method.method, method.label, method.rpcs) == (None, None, 31)


def test_each_capture_has_a_line_in_the_readme() -> None:
    readme = (WILD / "README.md").read_text()
    names = [path.name.split(".")[0] for path in WILD.glob("*.pcap*")]
    assert names
    assert [name for name in names if f"`{name}`" not in readme] == []
