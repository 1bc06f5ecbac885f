"""Results in the formats of other tools, made from ``results.json`` or from the run's folder."""
