"""The parts of `grpcdiag watch`: where packets come from, the flight recorder, the screen, the loop."""
