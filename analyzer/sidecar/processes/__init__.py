"""What the scheduler did with the threads of the recorded command, joined with packets."""
