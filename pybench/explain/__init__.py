"""Product: speedups that a node's own figures predict, and the parts of a shortfall."""
