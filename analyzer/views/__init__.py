"""What single reports read from a capture a second time: page data, events, traces, excerpts, evidence."""
