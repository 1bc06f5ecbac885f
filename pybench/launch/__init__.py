"""Floor 4: how a worker is started, here or (later) inside a container."""
