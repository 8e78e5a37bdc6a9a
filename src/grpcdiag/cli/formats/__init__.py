"""What `analyze` does with one capture, and report formats that read the capture again."""
