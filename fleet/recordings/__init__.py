"""Which files are one recording, and how to read them from folders and object stores."""
