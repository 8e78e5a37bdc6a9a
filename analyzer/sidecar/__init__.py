"""What `grpcdiag capture` records beside a capture: names, meaning, and what strangers may see of it."""
