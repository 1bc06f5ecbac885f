"""Variables that tune workers, from the shell or from a benchmark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import log2

from pybench.model.backend import BACKENDS

# How CUDA and collectives are tuned, and each backend.
TUNING_PREFIXES = (
    *("CUDA_", "NCCL_", "NVSHMEM_", "GLOO_"),
    *(prefix for traits in BACKENDS.values() for prefix in traits.tuning_prefixes),
)
# Set by pybench: an inherited value would point a rank at the wrong GPU.
NEVER_INHERITED = frozenset({"CUDA_VISIBLE_DEVICES"})
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of collectives within one machine: its loopback, which containers have without any other network."""
# Set for every worker, over whatever else there is.
_OURS = NEVER_INHERITED | {"CUDA_DEVICE_ORDER", "HF_HUB_OFFLINE", *LOOPBACK}
# A credential does not tune: a suite must request it by name. Endings of a name's parts.
_SECRET_WORDS = (
    *("TOKEN", "KEY", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PWD", "CREDENTIAL", "CREDENTIALS", "AUTH"),
    *("PASSPHRASE", "CREDS", "BEARER", "AUTHORIZATION", "SIGNATURE", "COOKIE"),
)
# Whole parts of a name whose value is a credential unless it is a number or a switch, as that of VLLM_MAX_TOKENS.
_OFTEN_SECRET = frozenset({"PASS", "PAT", "TOKENS", "HEADER", "HEADERS", "LOGIN"})
_SETTING = re.compile(r"[\d.,:+-]*|true|false|on|off|yes|no|auto|none|default", re.IGNORECASE)
# Where compiled code, logs and dumps lie, often in a folder of one job.
_FOLDERS = ("_CACHE_DIR", "_CACHE_PATH", "_CACHE_ROOT", "_ASSETS_CACHE", "_DUMP_DIR", "_DUMP_FILE", "_DEBUG_FILE")
# Up to the last "@", as curl and Python split it: a password may have "@" and "/". Presigned URLs sign their query.
_URL = re.compile(r"\b\w[\w+.-]*://(?:(?P<user>\S*)@)?[^\s?#@]*(?:[?#](?P<query>\S+))?")
_KEYED = re.compile(
    r"(?:token|key|secret|passw(?:or)?d|pwd|pass|passphrase|credentials?|creds|auth|authorization|bearer|basic|cookie"
    r"|signature|sig)[\"']?[\s:=]+[\"']?(?=(?P<value>[^\s\"'&;,]+))",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
_MIN_RANDOM_BITS = 28.0
"""Least entropy of a credential next to a key word, by its characters' frequencies: "bfloat16" has 24."""
_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127})=([!-~]+)")
MAX_ENVIRONMENT = 200
"""Characters of a benchmark's ``environment``, which stands in the names of its points."""


def tunes(name: str, value: str) -> bool:
    """Whether a variable of the shell reaches workers."""
    return name.startswith(TUNING_PREFIXES) and name not in NEVER_INHERITED and not is_secret(name, value)


def tuning_alone(environment: Mapping[str, str]) -> dict[str, str]:
    """The workers' variables that two runs must share, without the places of caches and logs."""
    return {name: value for name, value in environment.items() if not name.endswith(_FOLDERS)}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is a credential as a whole, by the parts of its name between underscores."""
    parts = name.upper().split("_")
    if any(part.endswith(_SECRET_WORDS) for part in parts):
        return True
    return not _OFTEN_SECRET.isdisjoint(parts) and _SETTING.fullmatch(value) is None


def credentials_in(value: str) -> tuple[str, ...]:
    """Parts of a value that are credentials, the longest first.

    A URL's user and password, its query, a long value next to a word such as ``token``, and 20 or more letters and
    digits of all kinds.
    """
    urls = [url.group(part) for url in _URL.finditer(value) for part in ("user", "query")]
    keyed = [match["value"] for match in _KEYED.finditer(value) if _bits(match["value"]) >= _MIN_RANDOM_BITS]
    words = [word for word in _WORD.findall(value) if all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", r"\d"))]
    return tuple(sorted({part for part in (*urls, *keyed, *words) if part}, key=len, reverse=True))


def _bits(text: str) -> float:
    """Entropy of a text by the frequencies of its characters."""
    return -sum(count * log2(count / len(text)) for count in Counter(text).values())


def variables_of(environment: str | None) -> dict[str, str]:
    """Variables by name of a text that :func:`environment_problem` found no fault with."""
    return dict(entry.split("=", 1) for entry in (environment or "").split(" ") if entry)


def environment_problem(environment: str) -> str | None:
    """Why ``NAME=VALUE NAME=VALUE``, which reports show, is refused; ``None`` for a valid text."""
    names: set[str] = set()
    for entry in filter(None, environment.split(" ")):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            return f"{entry!r} is not NAME=VALUE; several stand with a space between them"
        name, value = match.groups()
        if problem := _problem(name, value) or (f"{name} is set twice" if name in names else None):
            return problem
        names.add(name)
    return None


def _problem(name: str, value: str) -> str | None:
    if name in _OURS:
        return f"{name} is set by pybench; remove it"
    if is_secret(name, value) or credentials_in(value):
        return f"{name} holds a credential: name it in secrets of [container] instead"
    if not tunes(name, value):
        return f"{name} tunes no worker: names begin with {', '.join(dict.fromkeys(TUNING_PREFIXES))}"
    return f"{name} is a path, which means nothing in a container" if value.startswith("/") else None
