"""A run's evidence as one file: a zip archive of its folder with the SHA-256 of every file in it."""
