"""Floor 3: files of ours: suites, model shapes, expected tables, run folders."""
