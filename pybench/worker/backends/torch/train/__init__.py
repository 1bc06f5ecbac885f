"""Training: one step for all strategies, and a module for each strategy."""
