"""Equality 1: detached signatures of bundles, made and checked by OpenSSH's ``ssh-keygen``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pybench.evidence.values import Discrepancy
from pybench.machine.command import guarded_argv
from pybench.model.errors import MachineError, UsageError

NAMESPACE = "pybench-bundle"
"""Purpose of a signature: ssh-keygen refuses one that was made for another."""
_LIMIT_S = 120.0
"""Seconds for ssh-keygen, which may ask for a passphrase; it hashes 100 MB in 0.3 s."""
_MAX_SIGNATURE_BYTES = 2**16
"""Most bytes of a signature; one by an RSA key of 16,384 bits has 6 kB."""
_PROGRAM = "ssh-keygen"


def signature_path(file: Path) -> Path:
    """Path of the signature of ``file``."""
    return file.with_name(f"{file.name}.sig")


def sign(file: Path, key: Path) -> Path:
    """Sign ``file`` with a private key, or by the agent with a public one. Returns the signature's path.

    Raises ``MachineError`` where ssh-keygen is absent, slow or refuses.
    """
    signature_path(file).unlink(missing_ok=True)
    done = _run("sign", "-f", str(key.resolve()), "-n", NAMESPACE, str(file.resolve()))
    if done.returncode or not signature_path(file).is_file():
        raise MachineError(f"{_PROGRAM} did not sign with {key}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return signature_path(file)


def check_signature(file: Path, signers: Path | None) -> tuple[str | None, tuple[Discrepancy, ...]]:
    """A sentence about the maker of a good signature of ``file``, and what is wrong otherwise.

    With ``signers``, a file of allowed signers (``man ssh-keygen``), only their signatures are good, and one is
    required. Without, any key's signature is good; the sentence has the key's fingerprint. Raises ``UsageError``
    without such a file, ``MachineError`` where ssh-keygen is absent or slow.
    """
    if signers is not None and not signers.is_file():
        raise UsageError(f"--signers {signers}: no such file")
    path = signature_path(file)
    if not path.is_file():
        text = "not there: --signers names who should have signed the bundle"
        return None, (Discrepancy("signature", path.name, text),) if signers is not None else ()
    if path.stat().st_size > _MAX_SIGNATURE_BYTES:
        text = f"{path.stat().st_size} bytes, no signature has more than {_MAX_SIGNATURE_BYTES}"
        return None, (Discrepancy("signature", path.name, text),)
    options = ["-n", NAMESPACE, "-s", str(path)]
    if signers is None:
        done = _run("check-novalidate", *options, stdin=file)
    else:
        done = _run("find-principals", "-s", str(path), "-f", str(signers))
        if done.returncode == 0:
            identity = done.stdout.decode(errors="replace").splitlines()[0].split(",")[0].strip()
            done = _run("verify", *options, "-f", str(signers), "-I", identity, stdin=file)
    if done.returncode == 0:
        return done.stdout.decode(errors="replace").strip(), ()
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
    text = f"not a good signature: {lines[-1]}"
    return None, (Discrepancy("signature", path.name, text),)


def _run(verb: str, *options: str, stdin: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run ``ssh-keygen -Y VERB``; without ``stdin`` it may read a passphrase from the terminal."""
    try:
        argv = guarded_argv([_PROGRAM, "-Y", verb, *options])
        if stdin is None:
            return subprocess.run(argv, capture_output=True, check=False, timeout=_LIMIT_S)
        with stdin.open("rb") as stream:
            return subprocess.run(argv, stdin=stream, capture_output=True, check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        raise MachineError(f"{_PROGRAM} is not installed; install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"{_PROGRAM} did not answer within {_LIMIT_S:g} s; try again") from None
