"""Find the machine's trusted certificates as a trust store that a bundled Java reads.

The Java of a Python package has a trust store of its own, without certificate authorities that an administrator added
to the machine. The system's trust store for Java is used if it exists; otherwise the system's PEM bundle is converted
to a Java key store (JKS), which every Java reads.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

JAVA_STORES = (
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
)
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_BUNDLE_VARIABLE = "SSL_CERT_FILE"
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
# Default password of Java trust stores; their content is public.
_PASSWORD = "changeit"


def system_trust_store(
    variables: Mapping[str, str],
    cache: Path,
    java_stores: Sequence[str] = JAVA_STORES,
    bundles: Sequence[str] = _BUNDLES,
) -> Path | None:
    """Return a Java trust store with the certificates of this machine; None when no certificates are found.

    Args:
        variables: the environment; a bundle named by ``SSL_CERT_FILE`` comes before those of the system.
        cache: folder for a store that is converted from a bundle, named by the hash of its content.
        java_stores: paths of system trust stores for Java, tried in order.
        bundles: paths of system PEM bundles, tried in order.
    """
    named = variables.get(_BUNDLE_VARIABLE)
    for store in java_stores if not named else ():
        if os.access(store, os.R_OK):
            return Path(store)
    for bundle in filter(None, (named, *bundles)):
        certificates = _certificates(Path(bundle))
        if certificates:
            return _stored(key_store(certificates), cache)
    return None


def _certificates(bundle: Path) -> list[bytes]:
    """Read the certificates of a PEM file, as DER; an empty list when it cannot be read."""
    try:
        return [base64.b64decode(text) for text in _CERTIFICATE.findall(bundle.read_bytes())]
    except (OSError, ValueError):
        return []


def _stored(content: bytes, cache: Path) -> Path:
    store = cache / "trust" / f"{hashlib.sha256(content).hexdigest()[:16]}.jks"
    if not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        draft = store.with_name(f"{store.name}.{os.getpid()}")
        draft.write_bytes(content)
        draft.replace(store)
    return store


def key_store(certificates: Sequence[bytes]) -> bytes:
    """Encode trusted certificates (DER) as a Java key store of version 2.

    Layout, big-endian: magic, version, count; for each certificate its tag, alias, time, type, length and bytes; a
    SHA-1 digest over the password, a fixed phrase and the preceding bytes.
    """
    entries = [
        struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"certificate-{number}") + struct.pack(">q", 0)
        + _text("X.509") + struct.pack(">I", len(certificate)) + certificate
        for number, certificate in enumerate(dict.fromkeys(certificates))
    ]  # fmt: skip
    content = struct.pack(">III", _MAGIC, _VERSION, len(entries)) + b"".join(entries)
    return content + hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")
