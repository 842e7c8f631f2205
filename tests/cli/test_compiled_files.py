"""`compile -o` and `run` of what it wrote."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest


def test_compile_to_a_file_and_run_it(fusewise, tiny, tmp_path):
    onnx.save(tiny, tmp_path / "tiny.onnx")
    made = fusewise("compile", tmp_path / "tiny.onnx", "-o", tmp_path / "tiny.fw", "--json")
    assert made.status == 0 and json.loads(made.out)["output"].endswith("tiny.fw")
    for model in ("tiny.onnx", "tiny.fw"):
        assert fusewise("run", tmp_path / model, "-o", tmp_path / f"{model}.npz").status == 0
    found, expected = (np.load(tmp_path / f"{model}.npz") for model in ("tiny.fw", "tiny.onnx"))
    assert found.files == expected.files
    for name in expected.files:
        np.testing.assert_array_equal(found[name], expected[name])


def test_refusals(fusewise, tiny, tmp_path):
    onnx.save(tiny, tmp_path / "tiny.onnx")
    ended = fusewise("compile", tmp_path / "tiny.onnx", "-o", tmp_path / "tiny.so")
    assert ended.status == 2 and "must end in .fw" in ended.sentence
    fusewise("compile", tmp_path / "tiny.onnx", "-o", tmp_path / "tiny.fw")
    ended = fusewise("run", tmp_path / "tiny.fw", "--exact")
    assert ended.status == 2 and "--exact" in ended.sentence
    ended = fusewise("inspect", tmp_path / "tiny.fw")
    assert ended.status == 2 and "can only be run" in ended.sentence
    (tmp_path / "tiny.fw").write_bytes((tmp_path / "tiny.fw").read_bytes()[:-1])
    ended = fusewise("run", tmp_path / "tiny.fw")
    assert ended.status == 3 and "damaged" in ended.sentence


def test_only_signed_files_are_run_where_that_is_asked(fusewise, tiny, tmp_path):
    """With keys as a user makes them."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    for name in ("ours", "theirs"):
        key = Ed25519PrivateKey.generate()
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pem").write_bytes(private)
        (tmp_path / f"{name}.public.pem").write_bytes(public)
    onnx.save(tiny, tmp_path / "tiny.onnx")
    model = tmp_path / "tiny.onnx"
    assert fusewise("compile", model, "-o", tmp_path / "signed.fw", "--sign", tmp_path / "ours.pem").status == 0
    assert fusewise("compile", model, "-o", tmp_path / "plain.fw").status == 0
    ours, theirs = tmp_path / "ours.public.pem", tmp_path / "theirs.public.pem"
    assert fusewise("run", tmp_path / "signed.fw", "--trust", ours).status == 0
    for file, key, words in (
        ("plain.fw", ours, "is not signed"),
        ("signed.fw", theirs, "not signed with the key that is trusted"),
    ):
        ended = fusewise("run", tmp_path / file, "--trust", key)
        assert ended.status == 3 and words in ended.sentence
    for words, told in (
        (("run", model, "--trust", ours), "--trust asks for a compiled file"),
        (("run", tmp_path / "signed.fw", "--trust", tmp_path / "ours.pem"), "no public key in PEM"),
        (("compile", model, "--sign", tmp_path / "ours.pem"), "say which with --output"),
        (("compile", model, "-o", tmp_path / "x.fw", "--sign", ours), "no private key in PEM"),
        (("compile", model, "-o", tmp_path / "x.fw", "--sign", tmp_path / "none.pem"), "cannot read the key"),
    ):
        ended = fusewise(*words)
        assert ended.status == 2 and told in ended.sentence
