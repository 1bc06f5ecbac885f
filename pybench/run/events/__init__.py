"""What a worker reports of its attempts: read, checked for its form, held against the host's own order."""
