"""From bytes to findings: the decoding core's tables, and the diagnosis that reads them."""
