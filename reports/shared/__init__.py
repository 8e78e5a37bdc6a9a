"""What several reports have in common: words, drawing, escaping."""
