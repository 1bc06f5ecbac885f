"""Turns: what every engine and every trainer that share GPUs have in common."""
