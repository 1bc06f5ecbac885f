"""Holds what a run's files claim against what follows from its journal and its power traces."""
