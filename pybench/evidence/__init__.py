"""Product: bundles of a run, signatures, and the check of a run against its own records."""
