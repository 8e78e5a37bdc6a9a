"""Write and read the files of a fleet's dataset: rows, packet marks, sums, summaries."""
