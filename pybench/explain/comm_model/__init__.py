"""Why N GPUs are not N times one: step times predicted from what a node's own microbenchmarks reach.

| module | holds |
|---|---|
| `alpha_beta` | latency and bandwidth of a collective from its size curve |
| `figures` | what one node was measured to reach |
| `step_time` | a step's parts, and the parts of its shortfall |
| `training_shape` | what a training step is predicted from |
| `generation`, `training` | a model's step by tensor, pipeline, data parallelism and FSDP |
| `norms`, `inner`, `adapters`, `experts` | what a layer reads and writes beside its products |
| `scale_out` | predictions beyond what was measured, with an interval |
"""
