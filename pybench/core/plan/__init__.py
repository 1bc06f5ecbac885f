"""From a suite to its points.

| module | holds |
|---|---|
| `expand` | the points of a suite, and why others are left out |
| `axis_words`, `rest_gpus` | what the words of a suite stand for on a machine |
| `memory_profile` | which profile a machine gets |
| `required`, `point_filter`, `effort_override` | what the command line requires, keeps and changes |
| `assumed_gpus` | a machine that is not here |
| `ordered_work` | the work and the phases of a point's step |
"""
