"""Calls that pass a proxy: both legs joined into one call, and the time that the proxy held it."""
