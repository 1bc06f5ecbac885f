"""A run against earlier runs of the same suite on the same machine: changes, and the decision of a night."""
