"""One package for each backend; each imports its library."""
