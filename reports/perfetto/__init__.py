"""A capture as a Perfetto trace."""
