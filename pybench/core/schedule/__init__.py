"""Order of attempts, their processes, and the limit of time."""
