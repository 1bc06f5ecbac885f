"""Reports of one run: their tables, what did not pass, and each form they are written in."""
