"""Checks across a node's GPUs and links: one against the others, and what the driver counted.

| module | holds |
|---|---|
| `ranks` | what each rank reported, and the GPU it is |
| `spread` | the slowest GPU against the others |
| `sensors` | joules for the same work, temperature and clock against the other GPUs |
| `links` | each link against the others of its kind |
| `checksum` | results that must repeat bit for bit |
| `driver` | throttling, PCIe links, ECC and remapped rows, XIDs |
| `checks` | all of them, over a run |
"""
