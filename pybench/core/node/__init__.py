"""Checks across a node's GPUs and links: one against the others, and what the driver counted."""
