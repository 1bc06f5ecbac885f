"""What each workload can show."""
