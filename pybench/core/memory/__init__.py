"""Bytes that a point takes on its GPUs and its host, before it runs.

| module | holds |
|---|---|
| `fit` | whether a point fits, and what to change where it does not |
| `train`, `generate`, `turn` | what each workload takes on the GPU that holds most |
| `zero` | what DeepSpeed splits and updates |
| `weights` | weights as they are stored, also in four bits |
| `turn_host` | what a turn takes on its host |
| `activations` | what backward keeps of each layer |
| `changes` | settings that need less, as messages have them |
"""
