"""The network of one machine's ranks."""

from __future__ import annotations

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of collectives within one machine: its loopback, which containers have without any other network."""
