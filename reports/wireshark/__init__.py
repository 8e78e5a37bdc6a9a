"""What Wireshark shows: comments on packets, and a profile that colours and lists them."""
