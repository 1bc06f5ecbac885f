"""Common parts of engines: one process drives a whole replica, on one or more GPUs."""
