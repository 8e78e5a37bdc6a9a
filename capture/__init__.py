"""Recording: tcpdump around a command. This version reads captures; it does not record them."""
