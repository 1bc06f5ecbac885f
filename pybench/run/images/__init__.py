"""Floor 4: container images by digest: the lock, registries that confirm it, recipes that are built."""
