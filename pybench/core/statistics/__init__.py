"""Values with their uncertainty.

| module | holds |
|---|---|
| `interval` | a metric, or a ratio, from its attempts |
| `contrast` | a sum of means with signs, against a limit |
| `spread` | scatter of a point from many points; second speeds |
| `memory` | correlation of successive attempts |
| `units` | one unit against others of its kind |
| `false_discovery` | correction for many findings |
| `distributions` | Student's t, beta, binomial |
"""
