"""A bundle is the same for the same run, and is checked before anything of it is unpacked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.evidence import archive, signature
from pybench.evidence.archive import CRATE, STATEMENT, SUMS, write_bundle
from pybench.evidence.verify import verify_bundle
from tests.evidence.forgery import Forgery

Entries = dict[str, bytes]


def pybench(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def suite(original: Path) -> Path:
    return original.parents[1] / "drill.toml"


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """Of the run that holds."""
    write_bundle(original, original.name, tmp_path / "run.zip")
    return tmp_path / "run.zip"


def faults(file: Path, suite: Path) -> list[str]:
    found = verify_bundle(file, suite)
    assert not found.holds
    return [f"{each.place}: {each.text}" for each in found.discrepancies]


def rewritten(bundle: Path, change: Callable[[Entries], object]) -> Path:
    """The bundle with other content."""
    with zipfile.ZipFile(bundle) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    change(entries)
    with zipfile.ZipFile(bundle, "w") as new:
        for name, data in entries.items():
            new.writestr(name, data)
    return bundle


def test_the_command_writes_the_same_twice(original: Path, tmp_path: Path, suite: Path) -> None:
    """And verify holds it: exit code 0; without the suite to trust 4; the standard tool accepts its sums."""
    files = [tmp_path / "a.zip", tmp_path / "b.zip"]
    for file in files:
        assert pybench("bundle", original, "-o", file).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    held = pybench("verify", files[0], "--suite", suite, "--json", tmp_path / "found.json")
    assert (held.exit_code, held.stdout.split()[0]) == (0, "HOLDS")
    assert json.loads((tmp_path / "found.json").read_text())["discrepancies"] == []
    assert pybench("verify", files[0]).exit_code == 4
    with zipfile.ZipFile(files[0]) as stored:
        stored.extractall(tmp_path / "out")
    subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=tmp_path / "out" / original.name, check=True)


def test_other_tools_learn_what_a_bundle_holds(original: Path, bundle: Path) -> None:
    """In-toto Statement v1 with a test result v0.1, and RO-Crate 1.1: what both require, and each file of the run."""
    with zipfile.ZipFile(bundle) as stored:
        statement, crate = [json.loads(stored.read(f"{original.name}/{name}")) for name in (STATEMENT, CRATE)]
        files = {name.split("/", 1)[1]: stored.read(name) for name in stored.namelist()}
    inside = {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name not in {STATEMENT, CRATE, SUMS}
    }
    assert statement.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {entry["name"]: entry["digest"]["sha256"] for entry in statement["subject"]} == inside
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["predicate"]["result"] in {"PASSED", "WARNED", "FAILED"}
    assert statement["predicate"]["configuration"] == [
        {"name": "manifest.json", "digest": {"sha256": inside["manifest.json"]}}
    ]

    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    assert entities[CRATE] == {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    root = entities["./"]
    assert (root["@type"], bool(root["name"]), bool(root["description"])) == ("Dataset", True, True)
    assert datetime.fromisoformat(root["datePublished"]).tzinfo is not None
    assert {part["@id"] for part in root["hasPart"]} == set(inside)
    assert all(entities[name]["@type"] == "File" for name in inside)
    assert len(entities) == len(crate["@graph"]) == len(inside) + 2


def test_what_does_not_hold_is_listed_in_80_columns(forgery: Forgery, tmp_path: Path, suite: Path) -> None:
    """Exit code 1; the verdict first; no terminal is steered."""
    forgery.results(lambda values: values.update(description="\x1b[31mred"))
    assert pybench("bundle", forgery.path, "-o", tmp_path / "b.zip").exit_code == 0
    result = pybench("verify", tmp_path / "b.zip", "--suite", suite)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0].split("  ")[0]) == (1, "DOES NOT HOLD")
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.stdout
    assert "results.json: description:" in result.stdout


def test_a_run_without_results_is_not_bundled(forgery: Forgery, tmp_path: Path) -> None:
    """The next step is named, and nothing is left behind."""
    (forgery.path / "results.json").unlink()
    result = pybench("bundle", forgery.path, "-o", tmp_path / "b.zip")
    assert result.exit_code == 2
    assert "no results.json; write it with: pybench report" in result.stderr
    assert not list(tmp_path.glob("*b.zip*"))


def test_a_name_of_two_words_is_one_in_the_commands_to_copy(forgery: Forgery, tmp_path: Path) -> None:
    """Of the bundle, and of the run whose results are to be written first."""
    run = forgery.path.rename(tmp_path / "my run")
    made = pybench("bundle", run, "-o", tmp_path / "my bundle.zip")
    assert made.stdout.endswith(f"check it with: pybench verify '{tmp_path}/my bundle.zip'\n")
    (run / "results.json").unlink()
    refused = pybench("bundle", run, "-o", tmp_path / "b.zip")
    assert refused.stderr.endswith(f"pybench report '{run}' --format json -o '{run}/results.json'\n")


@pytest.mark.parametrize("name", ["summary.md", "worker/pybench/model/wire.py", "attempts/decode_tensor_parallel=1.1"])
def test_a_link_is_not_bundled(forgery: Forgery, tmp_path: Path, name: str) -> None:
    """Nothing outside of the run's folder gets into a bundle."""
    path = forgery.path / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to("/etc")
    result = pybench("bundle", forgery.path, "-o", tmp_path / "b.zip")
    assert (result.exit_code, "not a regular file" in result.stderr) == (2, True), result.output


def test_a_file_that_cannot_be_written(original: Path, tmp_path: Path) -> None:
    """One line, exit code 2."""
    (tmp_path / "file").touch()
    for place, reason in (
        ("no/b.zip", "No such file or directory; make its folder first"),
        ("file/b.zip", "Not a directory"),
        (f"{'b' * 250}.zip", "File name too long"),
    ):
        result = pybench("bundle", original, "-o", tmp_path / place)
        assert result.exit_code == 2, result.stderr
        assert result.stderr == f"pybench: {tmp_path / place}: cannot write the bundle: {reason}\n"


def test_a_pipe_is_not_replaced(original: Path, tmp_path: Path) -> None:
    """Nor waited for."""
    os.mkfifo(tmp_path / "pipe")
    result = pybench("bundle", original, "-o", tmp_path / "pipe")
    assert (result.exit_code, "not a regular file" in result.stderr) == (2, True)
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_has_no_signature(original: Path, tmp_path: Path) -> None:
    """Whoever requires one is not given a verdict without."""
    result = pybench("verify", original, "--signers", tmp_path / "signers")
    assert (result.exit_code, "a run's folder has no signature; give its bundle" in result.stderr) == (2, True)


def _edit(entries: Entries) -> None:
    name = next(name for name in entries if name.endswith("summary.md"))
    entries[name] += b"\n"


def _add(entries: Entries) -> None:
    entries[f"{next(iter(entries)).split('/')[0]}/worker/pybench/extra.py"] = b""


def _add_elsewhere(entries: Entries) -> None:
    entries[f"{next(iter(entries)).split('/')[0]}/notes.txt"] = b"all is well"


def _remove(entries: Entries) -> None:
    del entries[next(name for name in entries if name.endswith("junit.xml"))]


def _no_sums(entries: Entries) -> None:
    del entries[next(name for name in entries if name.endswith(SUMS))]


def _odd_sums(entries: Entries) -> None:
    entries[next(name for name in entries if name.endswith(SUMS))] += b"zz  ../../etc/passwd\n"


def _renamed(entries: Entries) -> None:
    for name in list(entries):
        entries[f"20200101T000000Z-drill/{name.split('/', 1)[1]}"] = entries.pop(name)


def _no_journal(entries: Entries) -> None:
    del entries[next(name for name in entries if name.endswith("journal.jsonl"))]


def _no_manifest(entries: Entries) -> None:
    del entries[next(name for name in entries if name.endswith("manifest.json"))]


def _describe_otherwise(entries: Entries) -> None:
    """With sums that agree."""
    name = next(name for name in entries if name.endswith(STATEMENT))
    text = entries[name].decode().replace('"result": "', '"result": "NOT ')
    sums = next(name for name in entries if name.endswith(SUMS))
    old, new = (hashlib.sha256(data).hexdigest().encode() for data in (entries[name], text.encode()))
    entries[name], entries[sums] = text.encode(), entries[sums].replace(old, new)


def _long_sums(entries: Entries) -> None:
    entries[next(name for name in entries if name.endswith(SUMS))] = b"\n" * (2**23 + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_long_sums, "larger than the 8388608 bytes of such a file"),
        (_edit, "summary.md: its SHA-256 is not the one in SHA256SUMS"),
        (_add, "worker/pybench/extra.py: in the bundle, but not listed"),
        (_add_elsewhere, "notes.txt: no file of a run"),
        (_remove, "junit.xml: listed in SHA256SUMS, but not in the bundle"),
        (_no_sums, "SHA256SUMS: cannot be read: No such file"),
        (_odd_sums, "not a digest and the name of a file"),
        (_renamed, "the bundle of 20200101T000000Z-drill"),
        (_no_journal, "journal.jsonl: listed in SHA256SUMS, but not in the bundle"),
        (_no_manifest, "no run here (no manifest.json)"),
        (_describe_otherwise, "in-toto-statement.json: describes other files or another verdict"),
    ],
)
def test_other_content(bundle: Path, suite: Path, change: Callable[[Entries], None], message: str) -> None:
    """Each is named."""
    named = faults(rewritten(bundle, change), suite)
    assert any(message in line for line in named), named


def _link(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


def _pipe(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFIFO | 0o644) << 16


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("r/../../escape", None, "leaves its folder"),
        ("/etc/passwd", None, "leaves its folder"),
        ("r/a/./b", None, "leaves its folder"),
        ("r//a", None, "leaves its folder"),
        ("r/.hidden", None, "leaves its folder"),
        ("r/a\\..\\b", None, "leaves its folder"),
        ("r/\u202eexe.txt", None, "leaves its folder"),
        ("r/" + "a" * 300, None, "leaves its folder"),
        ("r/" + "a/" * 20 + "b", None, "leaves its folder"),
        ("escape", None, "leaves its folder"),
        ("other/manifest.json", None, "not in one folder"),
        ("r/link", _link, "not a regular file"),
        ("r/pipe", _pipe, "not a regular file"),
        ("r/manifest.json", None, "two files of one name"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_name_is_not_unpacked(
    tmp_path: Path, suite: Path, name: str, change: Callable[[zipfile.ZipInfo], None] | None, message: str
) -> None:
    """Nothing is written, within the scratch folder or outside of it."""
    file = tmp_path / "b.zip"
    with zipfile.ZipFile(file, "w") as stored:
        stored.writestr("r/manifest.json", "{}")
        info = zipfile.ZipInfo(name)
        info.create_system = 3
        if change:
            change(info)
        stored.writestr(info, "x")
    assert message in faults(file, suite)[0]


def _patched(file: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An archive of one file of a MiB that packs to a KiB."""
    file = tmp_path / "b.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as stored:
        stored.writestr("r/manifest.json", b"\0" * 2**20)
    return file


@pytest.mark.parametrize("limit", ["MAX_TOTAL_BYTES", "_FREE_BYTES"])
def test_a_bomb_is_not_unpacked(small: Path, suite: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """By the size that it declares, which no evidence of its packed size has."""
    monkeypatch.setattr(archive, limit, 2**19)
    assert "1048576 bytes when unpacked; a bundle of its size has at most " in faults(small, suite)[0]


def test_a_bomb_that_declares_less_is_not_unpacked(small: Path, suite: Path) -> None:
    """No more than it declares, and then its checksum fails."""
    _patched(small, (2**20).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    assert "cannot be unpacked: " in faults(small, suite)[0]


def test_each_kind_of_file_has_its_most_bytes(tmp_path: Path, suite: Path) -> None:
    """A report or the worker's source is not as long as a trace; nothing of the bundle is unpacked."""
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as stored:
        stored.writestr("r/worker/pybench/wire.py", b"\0" * (2**24 + 1))
    assert "larger than the 16777216 bytes of such a file" in faults(tmp_path / "b.zip", suite)[0]


def test_more_files_than_a_bundle_has(small: Path, suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the archive's last record, before its directory is read."""
    monkeypatch.setattr(archive, "MAX_FILES", -3)
    assert "lists 1 files, more than" in faults(small, suite)[0]


def test_more_files_than_the_last_record_counts(tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory has them all, whatever that record says."""
    file = tmp_path / "b.zip"
    with zipfile.ZipFile(file, "w") as stored:
        for number in range(6):
            stored.writestr(f"r/worker/{number}", b"")
    data = file.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    file.write_bytes(data[: end + 8] + (1).to_bytes(2, "little") * 2 + data[end + 12 :])
    monkeypatch.setattr(archive, "MAX_FILES", 2)
    assert "holds 6 files, more than the 2 that a bundle may have" in faults(file, suite)[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x05\x06" + b"\0" * 18, "not in one folder"),
        (b"PK\x06\x07" + b"\0" * 16 + b"PK\x05\x06" + b"\xff" * 16 + b"\0\0", "too many or too large files"),
        (b"PK" + b"x" * 10_000, "not a bundle (no zip archive)"),
    ],
)
def test_no_archive(tmp_path: Path, suite: Path, data: bytes, message: str) -> None:
    """One line, no traceback."""
    (tmp_path / "b.zip").write_bytes(data)
    assert message in faults(tmp_path / "b.zip", suite)[0]


@pytest.mark.parametrize(
    ("name", "data", "end"),
    [
        ("results.json", b"{}", "; a results.json has no evidence to check"),
        ("passwd", b"x" * 10_000, ""),
        ("a.zip", b"", ""),
    ],
)
def test_a_file_of_another_kind_accuses_no_run(tmp_path: Path, name: str, data: bytes, end: str) -> None:
    """One line with what verify takes, exit code 2."""
    (tmp_path / name).write_bytes(data)
    result = pybench("verify", tmp_path / name)
    line = f"pybench: {tmp_path / name}: not a bundle; verify takes a bundle (.zip) or a run's folder{end}\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_signers_that_are_not_there(bundle: Path) -> None:
    """They are named before a bundle that nobody signed."""
    result = pybench("verify", bundle, "--signers", "nofile")
    assert (result.exit_code, result.stderr) == (2, "pybench: --signers nofile: no such file\n")


def test_a_bundle_cut_short(bundle: Path, suite: Path) -> None:
    """As a broken download."""
    bundle.write_bytes(bundle.read_bytes()[:-1000])
    assert "not a bundle (no zip archive), or cut short" in faults(bundle, suite)[0]


def test_a_signature(original: Path, tmp_path: Path, suite: Path) -> None:
    """Good by its maker's key; refused by another's, after an edit, and where it should be but is not."""
    for name in ("ours", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
        (tmp_path / f"{name}.signers").write_text(f"vendor@example.org {(tmp_path / f'{name}.pub').read_text()}")
    file = tmp_path / "b.zip"
    signed = pybench("bundle", original, "-o", file, "--sign", tmp_path / "ours")
    assert f"signature: {file}.sig" in signed.stdout, signed.output
    trusted = ("verify", file, "--suite", suite)
    assert "Signature: Good" in pybench(*trusted).stdout
    good = pybench(*trusted, "--signers", tmp_path / "ours.signers")
    assert (good.exit_code, "for vendor@example.org" in good.stdout) == (0, True), good.output
    other = pybench(*trusted, "--signers", tmp_path / "other.signers")
    assert (other.exit_code, "not a good signature" in other.stdout) == (1, True)
    with zipfile.ZipFile(file, "a") as stored:
        stored.comment = b"edited"
    for options in ((), ("--signers", tmp_path / "ours.signers")):
        edited = pybench(*trusted, *options)
        assert (edited.exit_code, "not a good signature" in edited.stdout) == (1, True), edited.output
    (tmp_path / "b.zip.sig").write_bytes(b" " * 2**20)
    large = pybench(*trusted, "--signers", tmp_path / "ours.signers")
    assert (large.exit_code, "b.zip.sig: 1048576 bytes, no signature has more than" in large.stdout) == (1, True)
    (tmp_path / "b.zip.sig").unlink()
    missing = pybench(*trusted, "--signers", tmp_path / "ours.signers")
    assert (missing.exit_code, "b.zip.sig: not there" in missing.stdout) == (1, True)


def test_a_slow_ssh_keygen_is_not_absent(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are errors of the machine, exit code 3, each with its own cause."""
    bundle.with_name("run.zip.sig").touch()
    program = tmp_path / "bin" / "ssh-keygen"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(signature, "_LIMIT_S", 0.1)
    slow = pybench("verify", bundle)
    assert (slow.exit_code, "did not answer within 0.1 s" in slow.stderr) == (3, True)
    program.unlink()
    absent = pybench("verify", bundle)
    assert (absent.exit_code, "ssh-keygen is not installed" in absent.stderr) == (3, True)


def test_a_key_that_is_not_there(original: Path, tmp_path: Path) -> None:
    """The next step is named."""
    result = pybench("bundle", original, "-o", tmp_path / "b.zip", "--sign", tmp_path / "none")
    assert (result.exit_code, "make one with: ssh-keygen -t ed25519" in result.stderr) == (2, True)
    assert not (tmp_path / "b.zip").exists()
