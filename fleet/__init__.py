"""Analyze captures of many hosts into one Parquet dataset, with local processes or a Dask cluster."""
