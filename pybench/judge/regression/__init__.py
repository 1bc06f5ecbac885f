"""A run against earlier runs of the same suite on the same machine: changes, and the decision of a night.

| module | holds |
|---|---|
| `figures` | what a run shows to other runs |
| `keys` | what must be equal for two runs to be compared |
| `change`, `comparison` | one row, and a run, against references |
| `series`, `trend` | the earlier runs that agree with a run, and a row over them |
| `baseline` | the nights that a row is judged by |
| `night_look` | looks at the newest nights, and which of all rows stand |
| `host_shift`, `evidence` | what all points share, and what was seen of the GPUs |
| `level_change` | the change-point test |
| `acceptance` | changes that somebody accepts |
| `gate`, `confirm` | the decision of a night, and what a rerun adds |
| `self_test` | what the gate can do on a machine |
"""
