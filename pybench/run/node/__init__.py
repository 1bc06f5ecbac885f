"""A host that takes the orders of another one, which leads the run."""
