"""Ports for servers that a test starts."""

from __future__ import annotations

import weakref

from pybench.run.hosts.rendezvous import held_port


def port_for(owner: object) -> int:
    """A port of loopback, which only a server with SO_REUSEADDR can have while ``owner`` lives."""
    held = held_port("127.0.0.1")
    weakref.finalize(owner, held.close)
    return int(held.getsockname()[1])
