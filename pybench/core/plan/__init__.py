"""From a suite to its points.

| module | holds |
|---|---|
| `expand` | the points of a suite, why others are left out, and what the command line requires and changes |
| `axis_words` | values of a suite's words on a machine |
| `point_filter` | the points that the command line keeps |
| `assumed_gpus` | a machine with other GPUs |
| `ordered_work` | the work and the phases of a point's step |
"""
