"""Many captures of many hosts: one Parquet dataset, worked on by an engine that already exists."""
