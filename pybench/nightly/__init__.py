"""Product: a run against earlier runs: comparison, A/B, history, and the gate of a night."""
