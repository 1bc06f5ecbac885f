"""What engines have in common: one process drives a whole replica, on one or more GPUs."""
