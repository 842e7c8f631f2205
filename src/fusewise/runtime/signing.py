"""Signatures of compiled files: Ed25519 (RFC 8032), by the package `cryptography`; keys in PEM, as `openssl` writes them.

openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout -out public.pem
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fusewise.errors import UsageError

__all__ = ["SIGNATURE_BYTES", "Key", "signer", "verifier"]

Key = str | Path | bytes
"""The path of a PEM file, or what such a file holds."""

SIGNATURE_BYTES = 64


def signer(key: Key) -> Callable[[bytes], bytes]:
    """A function that signs a message with a private key. `UsageError` when it is none, or `cryptography` is missing."""
    serialization, ed25519 = _cryptography()
    text, where = _pem(key)
    try:
        found = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError) as error:  # the second for one that is encrypted
        raise UsageError(f"{where} is no private key in PEM without a password: {error}") from None
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise UsageError(f"{where} is not an Ed25519 key")
    return lambda message: bytes(found.sign(message))


def verifier(key: Key) -> Callable[[bytes, bytes], bool]:
    """A function of a signature and a message: was it made with the private key to this public one? Errors as `signer`."""
    serialization, ed25519 = _cryptography()
    from cryptography.exceptions import InvalidSignature

    text, where = _pem(key)
    try:
        found = serialization.load_pem_public_key(text)
    except ValueError as error:
        raise UsageError(f"{where} is no public key in PEM: {error}") from None
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise UsageError(f"{where} is not an Ed25519 key")

    def verify(signature: bytes, message: bytes) -> bool:
        try:
            found.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return verify


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError(
            "signatures need the package cryptography, which is not installed: pip install 'fusewise[sign]'"
        ) from None
    return serialization, ed25519


def _pem(key: Key) -> tuple[bytes, str]:
    """The text of a key, and what to call it."""
    if isinstance(key, bytes):
        return key, "the key given"
    try:
        return Path(key).read_bytes(), str(key)
    except OSError as error:
        raise UsageError(f"cannot read the key {key}: {error.strerror}") from None
