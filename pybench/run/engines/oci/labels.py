"""The labels that mark a container as pybench's."""

from __future__ import annotations

OWNER_LABEL = "pybench.run"
"""The process that started it."""
ATTEMPT_LABEL = "pybench.attempt"
"""The token of its job."""
