"""Results in the formats of other tools, from ``results.json`` or with what the run's folder has beside it."""
