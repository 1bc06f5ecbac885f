"""Files of ours: suites, model shapes, expected tables, run folders."""
