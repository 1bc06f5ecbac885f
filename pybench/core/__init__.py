"""Pure: plans, schedules, statistics, formulas, node checks and verdicts."""
