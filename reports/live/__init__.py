"""What `grpcdiag watch` shows: figures of the last seconds, on a terminal, as JSON lines, for Prometheus."""
