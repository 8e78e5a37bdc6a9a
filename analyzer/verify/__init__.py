"""Compare grpcdiag's reading of a capture with Wireshark's."""
