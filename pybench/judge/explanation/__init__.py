"""A run's speedups beside those that a node's own figures predict.

| module | holds |
|---|---|
| `measured_step` | a measured point: its step, samples, GPUs |
| `measured_node` | a node's run, by its records or by its results alone |
| `node_figures` | what a node's run measured of GPUs and links |
| `notes` | sentences about points, each once |
| `predicted_phases` | the phases of a point's step from its settings and those figures |
| `launches` | whether the CPU that launches kernels bounds decode |
| `unknown_work` | work that the model of step times does not know |
| `left_out` | what predictions leave out of work that the model knows |
| `extrapolation` | speedups on more GPUs than were measured |
| `turn_phases` | the phases of a turn beside the same work alone, and their floors |
| `explanation` | all of it, for one run |
"""
