"""Detached signatures of files, made and checked by OpenSSH's ``ssh-keygen``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pybench.machine.command import CommandResult, guarded_argv, run_command
from pybench.model.errors import MachineError, UsageError

NAMESPACE = "pybench-bundle"
"""What a signature is good for: one of anything else is refused."""

_LIMIT_S = 120.0
_PROGRAM = "ssh-keygen"


def signature_path(file: Path) -> Path:
    """Where the signature of ``file`` is."""
    return file.with_name(f"{file.name}.sig")


def require_key(key: Path) -> None:
    """Raise ``UsageError`` where there is no such key."""
    if not key.is_file():
        raise UsageError(f"--sign {key}: no such key; make one with: ssh-keygen -t ed25519")


def sign(file: Path, key: Path) -> Path:
    """Sign ``file`` with a private key, or with the agent's for a public one. Returns the signature's path.

    Raises ``MachineError`` where ssh-keygen is absent or refuses, and ``UsageError`` without a key.
    """
    require_key(key)
    signature_path(file).unlink(missing_ok=True)
    # A passphrase is read from the terminal.
    try:
        done = subprocess.run(
            guarded_argv([_PROGRAM, "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(file)]),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except FileNotFoundError:
        raise MachineError(f"{_PROGRAM} is not installed; install OpenSSH's client to sign bundles") from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"{_PROGRAM} did not sign within {_LIMIT_S:g} s") from None
    if done.returncode or not signature_path(file).is_file():
        raise MachineError(f"{_PROGRAM} did not sign with {key}: {done.stderr.strip()[-300:]}")
    return signature_path(file)


def check_signature(file: Path, signers: Path | None) -> tuple[bool, str]:
    """Whether the signature of ``file`` is good, and a sentence about who made it.

    With ``signers``, a file of allowed signers (``man ssh-keygen``), only one of theirs is good; without, any key's is,
    and the sentence has its fingerprint. Raises ``MachineError`` where ssh-keygen is absent.
    """
    signature = str(signature_path(file))
    if signers is None:
        done = _with_input(file, "check-novalidate", "-n", NAMESPACE, "-s", signature)
        return done.ok, (done.out.strip() or done.error_line)
    found = _answer(run_command([_PROGRAM, "-Y", "find-principals", "-s", signature, "-f", str(signers)], _LIMIT_S))
    if not found.ok:
        return False, f"nobody whom {signers} names made it: {found.error_line}"
    identity = found.out.splitlines()[0].split(",")[0].strip()
    options = ("-n", NAMESPACE, "-s", signature, "-f", str(signers), "-I", identity)
    done = _with_input(file, "verify", *options)
    return done.ok, (done.out.strip() or done.error_line)


def _with_input(file: Path, verb: str, *options: str) -> CommandResult:
    try:
        with file.open("rb") as stream:
            argv = guarded_argv([_PROGRAM, "-Y", verb, *options])
            done = subprocess.run(argv, stdin=stream, capture_output=True, check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        return _answer(CommandResult(None, "", ""))
    except subprocess.TimeoutExpired:
        raise MachineError(f"{_PROGRAM} did not answer within {_LIMIT_S:g} s") from None
    return CommandResult(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _answer(done: CommandResult) -> CommandResult:
    if done.code is None:
        raise MachineError(f"{_PROGRAM} is not installed; install OpenSSH's client to check signatures")
    return done
