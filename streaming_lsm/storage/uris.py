"""Open the storage that a path or URI names: a folder of a disk, or the objects below a prefix."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes

from streaming_lsm.errors import ConfigError
from streaming_lsm.extras import missing_package
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage

if TYPE_CHECKING:
    from streaming_lsm.storage.objects.store import ObjectStorage

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/|^(?i:(file)):")
_OBJECT_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "memory": "memory",
}


def open_storage(uri: str | os.PathLike[str]) -> Storage:
    """Open the storage at a path or URI: ``/x``, ``x``, ``file:/x``, ``file:///x``, ``s3://bucket/x``.

    ``%XX`` is decoded in a URI, not in a path. Object stores: ``s3`` (``s3a``), ``gs``, ``az``, ``abfss`` and, for
    tests, ``memory``, whose objects are those of this process.

    Raises:
        ConfigError: the URI has a scheme or host without a storage, or the path is not valid.
        MissingPackage: the URI is that of an object store, and its client is not installed.
    """
    text = os.fspath(uri)
    found = _SCHEME.match(text)
    scheme = (found[1] or found[2]).lower() if found else ""
    if "\0" in text or "%00" in (text if found else ""):
        raise ConfigError(f"{text!r}: a path holds no NUL character")
    if not scheme:
        return LocalStorage(text)
    if scheme in _OBJECT_SCHEMES:
        return _open_objects(text, scheme)
    return LocalStorage(_path_of_uri(text, scheme))


def with_own_scheme(uri: str) -> str:
    """Return a URI with the scheme of its object store, such as ``s3://x`` for ``s3a://x``; any other as it is."""
    scheme, colon, rest = uri.partition("://")
    return f"{_OBJECT_SCHEMES.get(scheme, scheme)}{colon}{rest}"


def parent_uris(uri: str) -> list[str]:
    """Return the URIs of the folders above that of a storage, the nearest first."""
    scheme, _, path = uri.partition("://")
    # The root of a disk is empty, and so no folder above; a container may be a table itself.
    least = 1 if scheme == "file" else 0
    parents = []
    while path.count("/") > least:
        path = path.rpartition("/")[0]
        parents.append(f"{scheme}://{path}")
    return parents


def _open_objects(uri: str, scheme: str) -> ObjectStorage:
    host, _, path = uri.partition(":")[2].removeprefix("//").partition("/")
    user, at, rest = host.rpartition("@")
    if not uri.partition(":")[2].startswith("//") or not host:
        raise ConfigError(f"{scheme}: the URI of an object store names a bucket: write {scheme}://bucket/path")
    if at and (_OBJECT_SCHEMES[scheme] != "abfss" or ":" in user):
        raise ConfigError(
            f"{scheme}://…@{rest}: credentials do not belong into a URI, which is printed: set them in the environment "
            "(such as AWS_ACCESS_KEY_ID), and write only the name of the bucket"
        )
    if "?" in path or "#" in path:
        raise ConfigError(f"{scheme}://{host}: a URI of a table has no '?' and no '#': write %3F and %23 for them")
    try:
        from streaming_lsm.storage.objects.store import ObjectStorage
    except ModuleNotFoundError as error:
        raise missing_package(f"a table at {scheme}://", error) from None
    return ObjectStorage(_OBJECT_SCHEMES[scheme], unquote(host), unquote(path).rstrip("/"))


def _path_of_uri(uri: str, scheme: str) -> str:
    if scheme != "file":
        raise ConfigError(
            f"{uri!r}: no storage for scheme {scheme!r}; use a local path, file:///path, or s3, gs, az, abfss"
        )
    path = uri[len("file:") :]
    if not path.startswith("/"):
        raise ConfigError(f"{uri!r}: a file URI has an absolute path; write file:///path, or the path without file:")
    if path.startswith("//") and not path.startswith("///"):
        raise ConfigError(f"{uri!r}: a file URI names no host; write file:///path")
    return "/" + os.fsdecode(unquote_to_bytes(os.fsencode(path))).lstrip("/")
