"""Prove that N GPUs give the speedup they should, at the energy they should."""
