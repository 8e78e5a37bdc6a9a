"""Tables of rows for the terminal, CSV, JSON lines and Parquet."""
