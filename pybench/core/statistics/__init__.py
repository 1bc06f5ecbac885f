"""Values with their uncertainty.

| module | holds |
|---|---|
| `interval` | a metric, or a ratio, from its attempts |
| `contrast` | a sum of means with signs, against a limit |
| `spread` | what many points know of each point's scatter |
| `false_discovery` | which of many findings stand |
| `looks` | the level of each look where attempts are added until a verdict |
| `student_t`, `binomial` | distributions |
"""
