"""A run's folder and the files in it."""
