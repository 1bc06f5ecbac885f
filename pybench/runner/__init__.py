"""Floor 6: the loop over attempts: launch, sample, record, judge, resume."""
