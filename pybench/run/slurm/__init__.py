"""Slurm: starts one node runner on each host of an allocation; what they do there is theirs."""
