"""What each workload can be told."""
