"""How each workload's records become metrics."""
