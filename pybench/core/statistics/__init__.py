"""Values with their uncertainty: intervals, spread, memory of attempts, units against others, false discoveries."""
