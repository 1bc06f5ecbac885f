"""The loop over attempts: launch, sample, record, judge, resume; engines, images and hosts."""
