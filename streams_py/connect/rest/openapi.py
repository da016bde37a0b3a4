"""The table of all REST endpoints, also as an OpenAPI 3.1 document and as an HTML page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Final, Literal

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
_Body = Literal["new connector", "config", "patch", "task configs", "offsets"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. ``operation`` is a method of :class:`~streams_py.connect.rest.app.RestApi`.

    ``answers`` describes the responses by status.
    """

    method: Method
    path: str
    operation: str
    summary: str
    answers: dict[int, str]
    body: _Body | None = None
    parameters: tuple[str, ...] = ()


_C: Final = "/connectors/{name}"

ENDPOINTS: Final = (
    Endpoint("GET", "/", "root", "Version and Kafka cluster", {200: "version, commit, kafka_cluster_id"}),
    Endpoint("GET", "/health", "health", "Health of the worker", {200: "healthy", 503: "starting", 500: "unhealthy"}),
    Endpoint("GET", "/openapi.json", "openapi", "This document", {200: "OpenAPI 3.1"}),
    Endpoint("GET", "/docs", "docs", "This document as a page", {200: "HTML"}),
    Endpoint("GET", "/metrics", "metrics", "Metrics of this worker (not in Kafka Connect)", {200: "metrics by group"}),
    Endpoint("GET", "/workers", "workers", "Jobs of each worker, and jobs without a worker (not in Kafka Connect)",
             {200: "the group, as seen by its leader"}),
    Endpoint("GET", "/connectors", "list_connectors", "Names; details with expand=status, expand=info", {200: "a list"},
             parameters=("expand",)),
    Endpoint("POST", "/connectors", "create_connector", "Create a connector",
             {201: "created", 400: "what is wrong", 409: "exists already"}, "new connector"),
    Endpoint("GET", _C, "get_connector", "Configuration and tasks", {200: "the connector"}),
    Endpoint("DELETE", _C, "delete_connector", "Delete the connector", {204: "deleted"}),
    Endpoint("GET", f"{_C}/config", "get_config", "Configuration", {200: "keys and values"}),
    Endpoint("PUT", f"{_C}/config", "put_config", "Create the connector, or replace its configuration",
             {200: "changed", 201: "created", 400: "what is wrong"}, "config"),
    Endpoint("PATCH", f"{_C}/config", "patch_config", "Change some keys; null removes one",
             {200: "changed", 400: "what is wrong"}, "patch"),
    Endpoint("GET", f"{_C}/status", "get_status", "States of the connector and its tasks", {200: "states"}),
    Endpoint("GET", f"{_C}/offsets", "get_offsets", "Offsets of the source, or of the sink's consumer group",
             {200: "offsets"}),
    Endpoint("PATCH", f"{_C}/offsets", "alter_offsets", "Change offsets of a stopped connector; null removes one",
             {200: "changed", 400: "what is wrong, or not stopped"}, "offsets"),
    Endpoint("DELETE", f"{_C}/offsets", "reset_offsets", "Remove all offsets of a stopped connector",
             {200: "removed", 400: "not stopped"}),
    Endpoint("PUT", f"{_C}/pause", "pause", "Pause the connector and its tasks", {202: "accepted"}),
    Endpoint("PUT", f"{_C}/resume", "resume", "Resume after a pause or a stop", {202: "accepted"}),
    Endpoint("PUT", f"{_C}/stop", "stop", "Stop the connector; it keeps its configuration", {204: "stopped"}),
    Endpoint("POST", f"{_C}/restart", "restart", "Restart the connector, its tasks, or failed ones",
             {204: "accepted", 202: "accepted; the status"}, parameters=("includeTasks", "onlyFailed")),
    Endpoint("GET", f"{_C}/tasks", "get_tasks", "Tasks and their configurations", {200: "tasks"}),
    Endpoint("POST", f"{_C}/tasks", "put_tasks", "For workers: task configurations, signed",
             {204: "written", 400: "not signed", 403: "signed with another key", 503: "the key is not known yet"},
             "task configs"),
    Endpoint("GET", f"{_C}/tasks/{{task}}/status", "get_task_status", "State of a task", {200: "the state"}),
    Endpoint("POST", f"{_C}/tasks/{{task}}/restart", "restart_task", "Restart a task", {204: "restarted"}),
)  # fmt: skip

_CONFIG: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_BODIES: Final[dict[str, dict[str, Any]]] = {
    "new connector": {
        "type": "object",
        "required": ["name", "config"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "config": _CONFIG,
            "initial_state": {"enum": ["RUNNING", "PAUSED", "STOPPED"]},
        },
    },
    "config": _CONFIG,
    "offsets": {
        "type": "object",
        "required": ["offsets"],
        "additionalProperties": False,
        "properties": {
            "offsets": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["partition", "offset"],
                    "properties": {"partition": {"type": "object"}, "offset": {"type": ["object", "null"]}},
                },
            }
        },
    },
    "patch": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    "task configs": {"type": "array", "items": _CONFIG},
}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "expand": {"type": "array", "items": {"enum": ["status", "info"]}},
    "includeTasks": {"type": "boolean", "default": False},
    "onlyFailed": {"type": "boolean", "default": False},
}
_ERROR: Final = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    from streams_py import __version__

    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Connect worker", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    in_path = [name for name in ("name", "task") if f"{{{name}}}" in endpoint.path]
    parameters: list[dict[str, Any]] = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "integer" if n == "task" else "string"}}
        for n in in_path
    ]
    parameters += [{"name": n, "in": "query", "schema": _PARAMETERS[n]} for n in endpoint.parameters]
    answers: dict[str, Any] = {str(status): {"description": said} for status, said in endpoint.answers.items()}
    if in_path:
        answers.setdefault("404", {"description": "unknown connector or task"})
    answers["default"] = {
        "description": "an error; 409 while the workers rebalance",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    said: dict[str, Any] = {"operationId": endpoint.operation, "summary": endpoint.summary, "responses": answers}
    if parameters:
        said["parameters"] = parameters
    if endpoint.body:
        said["requestBody"] = {"required": True, "content": {"application/json": {"schema": _BODIES[endpoint.body]}}}
    return said


def page() -> str:
    """Return the HTML page, which loads nothing from other hosts."""
    rows = "".join(
        f"<tr><td>{e.method}<td><code>{html.escape(e.path)}</code><td>{html.escape(e.summary)}"
        f"<td>{html.escape(', '.join(f'{status} {said}' for status, said in e.answers.items()))}</tr>\n"
        for e in ENDPOINTS
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Connect worker</title>'
        "<style>body{font-family:sans-serif}td{padding:.2em .8em}</style><h1>Connect worker</h1>"
        f'<p>As a document: <a href="/openapi.json">OpenAPI</a>.<table>\n{rows}</table></html>'
    )
