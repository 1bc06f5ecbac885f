"""Transformers as a user would run it: with the library's loading, ways to use several GPUs, and ``generate``."""
