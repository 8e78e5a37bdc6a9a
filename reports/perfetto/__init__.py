"""Write a capture as a Perfetto trace."""
