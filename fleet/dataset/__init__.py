"""The files of a fleet's dataset: rows, marks of packets, sums, summaries."""
