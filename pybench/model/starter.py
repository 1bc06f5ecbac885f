"""Who started a worker: the process that it must not outlive."""

from __future__ import annotations

STARTER_VARIABLE = "PYBENCH_STARTER"
"""Set for a worker to the id of the process that started it, where both see the same ids."""
ROOM_VARIABLE = "PYBENCH_ROOM"
"""Set for a process that forks workers: bytes that their environments are shown in."""
