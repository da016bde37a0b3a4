"""HTTP basic authentication for users of the REST interface.

``rest.basic.auth.credentials.file`` has a line ``user = password`` for each user, like the file of Kafka Connect's
``PropertyFileLoginModule``. All workers of a group need the same file: a forwarded request has the credentials of its
caller, and a worker's own requests have the credentials of the first user.

Two kinds of requests need no credentials. For requests on a Unix socket, the socket's mode has decided who may use it.
Task configurations from another worker are signed with the session key of the group (KIP-507), if the group's protocol
has session keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streams_py.config.files import properties_in
from streams_py.connect.rest.signing import SIGNATURE_HEADER
from streams_py.errors import ConfigError

KEY: Final = "rest.basic.auth.credentials.file"
_OTHERS: Final = 0o077
_BYTES_MAX: Final = 1 << 20
_FROM_WORKERS: Final = re.compile(r"/connectors/[^/]+/tasks")


class Credentials:
    """Users and their passwords. Created with :meth:`read`. ``repr`` shows neither."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {user: _digest(password) for user, password in users.items()}
        user, password = next(iter(users.items()))
        self.header = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        """``Authorization`` header of a worker's own requests."""

    @classmethod
    def read(cls, path: str) -> Credentials:
        """Read a file that only this process's user may read.

        ConfigError names the file, never its content.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise _wrong(path, "is not a file")
                if status.st_uid not in (0, os.geteuid()):
                    raise _wrong(path, f"belongs to uid {status.st_uid}; it must belong to the worker's user")
                if status.st_mode & _OTHERS:
                    mode = stat.S_IMODE(status.st_mode)
                    raise _wrong(path, f"has mode {mode:04o}, so other users can read it; use chmod 600")
                content = file.read(_BYTES_MAX)
        except OSError as error:
            raise _wrong(path, f"cannot be read: {error.strerror}") from None
        try:
            users = dict(properties_in(content.decode(), Path(path)))
        except (ConfigError, UnicodeDecodeError):  # the text would quote the line
            raise _wrong(path, "is not a .properties file in UTF-8") from None
        if not users or not all(users.values()) or any(":" in user for user in users):
            raise _wrong(path, "must contain lines user = password, with non-empty passwords and no colon in names")
        return cls(users)

    def accept(self, authorization: str | None) -> bool:
        """Whether a request with this ``Authorization`` comes from one of the users."""
        scheme, _, encoded = (authorization or "").partition(" ")
        try:
            user, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        expected = self._users.get(user, _NOBODY)
        return hmac.compare_digest(expected, _digest(password)) and scheme.lower() == "basic" and user in self._users


class Authentication:
    """Middleware that answers with 401 unless the caller may use the interface.

    Args:
        app: The application.
        credentials: Credentials of the users.
        signs_requests: Whether workers of the group sign the task configurations that they send. The application
            verifies these signatures.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials, signs_requests: Callable[[], bool]) -> None:
        self._app = app
        self._credentials = credentials
        self._signs_requests = signs_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._may_pass(scope):
            content = {"error_code": 401, "message": "this worker requires a user and a password (HTTP basic)"}
            headers = {"WWW-Authenticate": 'Basic realm="Connect worker"'}
            return await JSONResponse(content, 401, headers)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        return self._is_exempt(scope) or self._credentials.accept(Headers(scope=scope).get("authorization"))

    def _is_exempt(self, scope: Scope) -> bool:
        server = scope.get("server")
        if server is not None and server[1] is None:  # a Unix socket
            return True
        if scope["method"] != "POST" or _FROM_WORKERS.fullmatch(scope["path"]) is None:
            return False
        return SIGNATURE_HEADER in Headers(scope=scope) and self._signs_requests()


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


_NOBODY: Final = _digest(os.urandom(32).hex())


def _wrong(path: str, problem: str) -> ConfigError:
    return ConfigError(f"{KEY}: {path} {problem}", key=KEY)
