"""Options, output, progress and errors that commands share."""
