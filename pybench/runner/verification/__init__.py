"""Verifies a run from its files: everything that follows from journal and traces is worked out again."""
