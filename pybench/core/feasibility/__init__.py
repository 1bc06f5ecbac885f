"""Why a point can't run, whatever memory there is.

| module | holds |
|---|---|
| `point` | every reason of a point |
| `train`, `generate`, `turn` | those of each workload |
| `number_types` | those of types that a GPU does not compute in |
"""
