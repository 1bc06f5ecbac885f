"""Workloads that measure a node: its GPUs, memories and links. No model runs."""
