"""Expected tables.

| module | holds |
|---|---|
| `file` | reading them, beside a suite or from those that pybench ships |
| `keys`, `rules` | what a row may have, and what its keys satisfy together |
| `text` | one as TOML |
"""
