"""Results in the file formats of other tools, each from ``results.json`` alone."""
