"""What engines have in common: one process drives a whole copy of the model, on one or more GPUs."""
