"""Why N GPUs are not N times one: predictions from the rates that a node check measured."""
