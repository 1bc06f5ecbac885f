"""Floor 5: the loop over points: launch, sample, record, judge, resume."""
