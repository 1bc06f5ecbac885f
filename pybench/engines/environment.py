"""What a worker inherits from the shell: an allow-list, so that two shells give one measurement."""

from __future__ import annotations

from collections.abc import Mapping

from pybench.model.backend import BACKENDS

# How CUDA and collectives are tuned, and each backend.
TUNING_PREFIXES = (
    *("CUDA_", "NCCL_", "NVSHMEM_", "GLOO_"),
    *(prefix for traits in BACKENDS.values() for prefix in traits.tuning_prefixes),
)
# Set by us or by torchrun: an inherited value would point a rank at the wrong GPU.
NEVER_INHERITED = frozenset({"CUDA_VISIBLE_DEVICES"})
# A token does not tune: a suite must request it by name.
SECRETS = frozenset({"HF_TOKEN", "VLLM_API_KEY"})


# Collectives of one host use its loopback; containers have no other network.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


def tuning(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables that mean the same inside a container: no secrets, no paths, nothing on two lines."""
    return {
        name: value
        for name, value in host.items()
        if name.startswith(TUNING_PREFIXES)
        and name not in NEVER_INHERITED | SECRETS
        and not value.startswith("/")
        and not {"\n", "\r", "\0"}.intersection(value)
    }


def fixed(gpu_uuids: tuple[str, ...]) -> dict[str, str]:
    """What every worker gets, whatever the shell sets: its GPUs by UUID, no network look-ups, whole lines of log."""
    values = {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    # One rank is one core: otherwise a single rank would use every core and no speedup could show.
    return values if gpu_uuids else {**values, "OMP_NUM_THREADS": "1"}
