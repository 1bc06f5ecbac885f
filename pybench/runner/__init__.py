"""Floor 6: the loop over points: launch, sample, record, judge, resume."""
