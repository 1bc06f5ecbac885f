"""Transformers as a user would run it: its own loading, its own ways to use several GPUs, its own ``generate``."""
