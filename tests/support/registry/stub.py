"""A schema registry in memory, over HTTP on loopback: as much of the API as serializers use."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from streams_py.registry import SchemaRegistry

SCHEMA_JSON = "application/vnd.schemaregistry.v1+json"


class RegistryStub:
    """``schemas``: id -> what was registered. ``subjects``: subject -> ids. ``answer``: (status, body) that every
    request gets instead, while it is set. ``user_info``: what clients must send, if given.
    ``requests``: method and path of each."""

    def __init__(self, *, first_id: int = 1, user_info: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.answer: tuple[int, bytes] | None = None
        self.user_info = user_info
        self.requests: list[tuple[str, str]] = []
        self._next_id = first_id
        self._lock = threading.Lock()
        self.url = ""

    def registry(self, settings: dict[str, object] | None = None, **options: Any) -> SchemaRegistry:
        """Return a client of this registry with much time for its requests, because the machine may be busy."""
        return SchemaRegistry(self.url, settings, **{"timeout_ms": 60_000, **options})

    def add(self, schema: dict[str, Any], subject: str) -> int:
        """Register; the same schema again has the same id."""
        with self._lock:
            number = next((n for n, known in self.schemas.items() if known == schema), None)
            if number is None:
                number = self._next_id
                self._next_id += 1
                self.schemas[number] = schema
            ids = self.subjects.setdefault(subject, [])
            if number not in ids:
                ids.append(number)
            return number

    def respond(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = [unquote(part) for part in path.split("?")[0].strip("/").split("/")]
        match method, parts:
            case "POST", ["subjects", subject, "versions"]:
                schema = {"schemaType": body.get("schemaType", "AVRO"), "schema": body["schema"]}
                if body.get("references"):
                    schema["references"] = body["references"]
                number = self.add(schema, subject)
                return 200, {"id": number, "version": self.subjects[subject].index(number) + 1, **schema}
            case "POST", ["subjects", subject]:
                for version, number in enumerate(self.subjects.get(subject, []), 1):
                    if self.schemas[number]["schema"] == body["schema"]:
                        return 200, {"subject": subject, "id": number, "version": version, **self.schemas[number]}
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if not ids:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                at = len(ids) if version == "latest" else int(version)
                return 200, {"subject": subject, "version": at, "id": ids[at - 1], **self.schemas[ids[at - 1]]}
            case "GET", ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return (200, found) if found else (404, {"error_code": 40403, "message": f"Schema {number} not found"})
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def running(stub: RegistryStub, port: int = 0) -> Iterator[RegistryStub]:
    """The stub, reachable at ``stub.url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            stub.requests.append((self.command, self.path))
            expected = None
            if stub.user_info is not None:
                expected = f"Basic {base64.b64encode(stub.user_info.encode()).decode()}"
            if stub.answer is not None:
                status, data = stub.answer
            elif self.headers.get("Authorization") != expected:
                status, data = 401, b'{"error_code":401,"message":"Unauthorized"}'
            else:
                status, answer = stub.respond(self.command, self.path, body)
                data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", SCHEMA_JSON)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815  # the base class's name

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
