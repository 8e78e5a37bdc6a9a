"""What commands have in common: options, output, progress, errors."""
