"""Floor 3: this machine, its GPUs and its power sensors."""
