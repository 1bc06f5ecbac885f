"""Checkpoints of a trainer: what is saved, how, where, and whether it comes back bit for bit."""
