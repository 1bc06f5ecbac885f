"""A folder of runs by time.

| module | holds |
|---|---|
| `folder` | the runs of the folder, the oldest first |
| `index` | what makes it fast to open |
| `accepted` | changes that somebody accepts |
"""
