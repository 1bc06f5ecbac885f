"""Each workload's settings and metrics."""
