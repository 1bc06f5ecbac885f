"""Floor 1: plans, statistics, energy and FLOPs; pure."""
