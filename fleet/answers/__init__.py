"""What a dataset answers, as text, JSON and HTML."""
