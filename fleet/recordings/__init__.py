"""Group files into recordings, and read them from folders and object stores."""
