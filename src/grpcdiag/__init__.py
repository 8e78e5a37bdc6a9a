"""grpcdiag: where the time of every RPC in a packet capture went, and why."""
