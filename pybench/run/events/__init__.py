"""Events of a worker: read, checked for their form, and compared with the host's order."""
