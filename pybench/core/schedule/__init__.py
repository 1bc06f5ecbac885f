"""Which attempt runs next, in which process, and which still fit the time.

| module | holds |
|---|---|
| `attempts` | the order of a run's attempts |
| `session` | which of them share a process |
| `interleave` | the attempts of two runs in turn |
| `time_budget` | what fits a time limit |
| `auto_batch` | the batch size that later attempts take from the first |
"""
