"""Values with their uncertainty.

| module | holds |
|---|---|
| `interval` | a metric, or a ratio, from its attempts |
| `contrast` | a sum of means with signs, against a limit |
| `spread` | what many points know of each point's scatter; second speeds |
| `memory` | correlation of successive attempts |
| `false_discovery` | which of many findings stand |
| `looks` | the level of each look where attempts are added until a verdict |
| `distributions` | distributions |
"""
