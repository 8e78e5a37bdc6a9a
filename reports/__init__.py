"""Reports: `render(analysis) -> str`, one file per format. They read an `Analysis` and nothing else."""
