"""Product: the slow node, GPU or link of a fleet."""
