"""Read a capture again for single reports: page data, events, traces, excerpts, evidence."""
