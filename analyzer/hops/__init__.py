"""Join both legs of calls through a proxy into one call, and measure how long the proxy held it."""
