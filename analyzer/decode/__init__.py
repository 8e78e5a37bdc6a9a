"""Run the core over captures: options, rows in memory or on disk, errors."""
