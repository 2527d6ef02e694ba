"""Translate failures of an object store's client into errors that name the object and the remedy.

Messages of the client contain requests and answers. Only the code and the text of an answer are kept: query strings,
such as signatures of Azure, and the user information of an endpoint are left out.
"""

from __future__ import annotations

import errno
import re

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from streaming_lsm.errors import ConfigError, LsmError, StorageError

_CODE = re.compile(r"<Code>([^<]*)</Code>")
_TEXT = re.compile(r"<Message>([^<]*)</Message>")
_QUERY = re.compile(r"\?\S*")
_USER = re.compile(r"//[^/@\s]*@")
_MOST = 300

_REMEDIES = {
    "NoSuchBucket": "there is no such bucket: create it, or correct the URI",
    "ContainerNotFound": "there is no such container: create it, or correct the URI",
    "InvalidBucketName": "this is not the name of a bucket: correct the URI",
    "ExpiredToken": "the credentials have expired: renew them, then start again",
    "TokenRefreshRequired": "the credentials have expired: renew them, then start again",
    "InvalidAccessKeyId": "the access key is unknown: correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key does not fit the access key: correct AWS_SECRET_ACCESS_KEY",
    "InvalidToken": "the session token is not valid: correct AWS_SESSION_TOKEN, or remove it",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "PermanentRedirect": "the bucket is in another region: correct AWS_REGION",
    "AuthorizationHeaderMalformed": "the bucket is in another region: correct AWS_REGION",
    "IllegalLocationConstraintException": "the bucket is in another region: correct AWS_REGION",
}
# What the client says where there is no code.
_PHRASES = {
    "edirect without LOCATION": _REMEDIES["PermanentRedirect"],
    "169.254.169.254": "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}
_UNREACHABLE = ("dns error", "error sending request", "error trying to connect")

STORE_ERRORS = (BaseError, OSError, ValueError)
"""Lists what calls of the client raise. It raises the base class of its errors for none of them."""
CONFLICTS = (AlreadyExistsError, PreconditionError)
"""The object exists, or has another version, or another process changes it at this moment."""


def failure(uri: str, error: BaseException) -> Exception:
    """Return the error to raise for a failed call.

    Args:
        uri: URI of the object, or of a folder.
        error: what the client raised.

    Returns:
        `FileNotFoundError`, `FileExistsError` or `PermissionError` as a local file system; `StorageError` for a
        failure that another attempt does not mend; else `OSError`.
    """
    text = str(error)
    remedy = _remedy(text)
    if remedy is not None:
        return StorageError(f"{uri}: {remedy} ({_short(text)})")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", uri)
    if isinstance(error, CONFLICTS):
        return FileExistsError(errno.EEXIST, "the object exists or was changed", uri)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or "<Code>AccessDenied</Code>" in text:
        return PermissionError(errno.EACCES, f"the credentials do not permit this ({_short(text)})", uri)
    if any(phrase in text.partition("\n")[0] for phrase in _UNREACHABLE):
        unreached = "the store cannot be reached, check the endpoint (AWS_ENDPOINT_URL of S3)"
        return OSError(errno.EIO, f"{unreached} ({_short(text)})", uri)
    return OSError(errno.EIO, _short(text), uri)


def opening_failure(url: str, error: BaseException) -> LsmError:
    """Return the error to raise if a client cannot be made."""
    return ConfigError(
        f"{url}: {_short(str(error))}: complete the settings of the store in the environment (AWS_REGION, "
        "AZURE_STORAGE_ACCOUNT_NAME, …), or correct the URI"
    )


def _remedy(text: str) -> str | None:
    code = _CODE.search(text)
    if code is not None:
        return _REMEDIES.get(code[1])
    # A bare 404 to HEAD, whose answer has no code, is that of an object.
    line = text.partition("\n")[0]
    return next((remedy for phrase, remedy in _PHRASES.items() if phrase in line), None)


def _short(text: str) -> str:
    code, message = _CODE.search(text), _TEXT.search(text)
    if code is not None:
        return f"{code[1]}: {message[1]}"[:_MOST] if message else code[1]
    return _USER.sub("//", _QUERY.sub("", text.partition("\n")[0]))[:_MOST]
