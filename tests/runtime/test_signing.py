"""Signed files: a service runs what it made, and nothing else."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.errors import InvalidModel, UsageError
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import container, signing

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519  # noqa: E402 - an extra

MAGIC = b"fusewise artefact\n"


def private_pem(key: Any) -> bytes:
    plain = serialization.NoEncryption()
    return bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


def public_pem(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


OURS, THEIRS = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def model() -> fusewise.Model:
    b = GraphBuilder("network")
    w = np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32)
    return fusewise.compile(b.finish(b.op("Relu", b.op("MatMul", b.input("x", (4, 48)), b.constant(w)))), cache=False)


@pytest.fixture(scope="module")
def signed(model: fusewise.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("signed") / "signed.fw"
    model.save(path, sign=private_pem(OURS))
    return path


@pytest.fixture(scope="module")
def unsigned(model: fusewise.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unsigned") / "unsigned.fw"
    model.save(path)
    return path


def test_a_signed_file_runs_with_trust_and_without(model: fusewise.Model, signed: Path, tmp_path: Path) -> None:
    feeds = model.random_inputs()
    (tmp_path / "public.pem").write_bytes(public_pem(OURS))
    for trust in (None, public_pem(OURS), tmp_path / "public.pem", str(tmp_path / "public.pem")):
        opened = fusewise.open_compiled(signed, trust=trust)
        np.testing.assert_array_equal(opened.run(None, feeds)[0], model.run(None, feeds)[0])


def test_others_are_refused(signed: Path, unsigned: Path) -> None:
    with pytest.raises(InvalidModel, match=r"unsigned\.fw is not signed, and only signed files are trusted here"):
        fusewise.open_compiled(unsigned, trust=public_pem(OURS))
    with pytest.raises(InvalidModel, match=r"signed\.fw is not signed with the key that is trusted here"):
        fusewise.open_compiled(signed, trust=public_pem(THEIRS))


def repaired(data: bytes, change: Callable[[dict[str, Any]], object] = lambda manifest: None) -> bytes:
    """The file with a changed manifest and every checksum made right, as its maker would, who has no key."""
    start = len(MAGIC) + 8
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    manifest = json.loads(data[start : start + length])
    body = data[start + length + 4 :]
    total = manifest["bytes"]
    manifest["checksums"] = [
        zlib.crc32(body[k : min(k + container._STRETCH_BYTES, total)])
        for k in range(0, total, container._STRETCH_BYTES)
    ]
    change(manifest)
    text = json.dumps(manifest, separators=(",", ":")).encode().ljust(length)
    head = MAGIC + len(text).to_bytes(8, "little") + text
    return head + zlib.crc32(head).to_bytes(4, "little") + body


def test_what_a_stranger_changes_is_refused_even_with_right_checksums(signed: Path, tmp_path: Path) -> None:
    data = signed.read_bytes()
    path = tmp_path / "evil.fw"

    def refused(content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(InvalidModel, match="is not signed|damaged"):
            fusewise.open_compiled(path, trust=public_pem(OURS))

    refused(repaired(data, lambda m: m["program"].update(workers=1)))
    refused(repaired(data, lambda m: m.pop("digests")))
    total = json.loads(
        data[len(MAGIC) + 8 : len(MAGIC) + 8 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")]
    )
    begin = len(data) - signing.SIGNATURE_BYTES - total["bytes"]
    for place in (begin, begin + 200, begin + total["bytes"] - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        refused(repaired(bytes(changed)))
        again = repaired(bytes(changed), lambda m: m.update(digests=["0" * 64] * len(m["digests"])))
        refused(again)
    refused(data[: -signing.SIGNATURE_BYTES])
    refused(data + b"\0")
    refused(data[:-1] + bytes([data[-1] ^ 1]))


def test_every_byte_counts(signed: Path, tmp_path: Path) -> None:
    data, rng = signed.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(data), 40).tolist():
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "changed.fw").write_bytes(changed)
        with pytest.raises(InvalidModel):
            fusewise.open_compiled(tmp_path / "changed.fw", trust=public_pem(OURS))


@pytest.mark.parametrize("key", [b"", b"no key", public_pem(OURS), private_pem(x25519.X25519PrivateKey.generate())])
def test_what_is_no_private_key(model: fusewise.Model, tmp_path: Path, key: bytes) -> None:
    with pytest.raises(UsageError, match="the key given is"):
        model.save(tmp_path / "m.fw", sign=key)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", [b"", private_pem(OURS), public_pem(x25519.X25519PrivateKey.generate())])
def test_what_is_no_public_key(signed: Path, key: bytes) -> None:
    with pytest.raises(UsageError, match="the key given is"):
        fusewise.open_compiled(signed, trust=key)


def test_a_key_that_is_not_there_or_needs_a_password(model: fusewise.Model, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the key .*none\.pem: No such file"):
        model.save(tmp_path / "m.fw", sign=tmp_path / "none.pem")
    locked = serialization.BestAvailableEncryption(b"secret")
    pem = OURS.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    with pytest.raises(UsageError, match="without a password"):
        model.save(tmp_path / "m.fw", sign=pem)


def test_without_the_package(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(UsageError, match=r"pip install 'fusewise\[sign\]'"):
        fusewise.open_compiled(signed, trust=public_pem(OURS))
