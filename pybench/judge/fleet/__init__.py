"""Which node of a fleet is slow: nodes of one kind held against each other.

| module | holds |
|---|---|
| `node_run` | what a run of a node shows to the fleet |
| `identity` | which runs are of which node |
| `alike` | which nodes may be compared |
| `figures` | every figure against the fleet's distribution, and which stand among all |
| `groups` | figures that one cause moves together |
| `slow_figures` | what stands, as evidence: the node or one GPU of it, and how it stood |
| `pairs` | whether a node is slow with every partner, or one link is |
| `barriers` | who arrives last |
| `decision` | the state of every node |
"""
