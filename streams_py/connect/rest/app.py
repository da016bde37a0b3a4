"""The resources of Kafka Connect's REST interface, implemented with a worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

import httpx
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.errors import ConnectError, NotFoundError, NotLeaderError, RebalanceExpectedError
from streams_py.connect.rest.authentication import Authentication
from streams_py.connect.rest.forwarding import OtherWorkers
from streams_py.connect.rest.herder import JobStatusView, RestHerder
from streams_py.connect.rest.openapi import ENDPOINTS, document, page
from streams_py.connect.rest.protection import RestProtection
from streams_py.connect.rest.requests import (
    NewConnector,
    config_of,
    flag,
    json_of,
    offsets_of,
    patch_of,
    task_configs_of,
)
from streams_py.connect.rest.server import RequestGuard
from streams_py.connect.rest.signing import SIGNATURE_HEADER, verify
from streams_py.connect.worker.group_view import GroupView
from streams_py.errors import StreamsError

_P = ParamSpec("_P")
_T = TypeVar("_T")

REQUEST_S: Final = 90.0
REBALANCE_S: Final = 10.0
HEALTH_S: Final = 10.0
_RETRY_S: Final = 0.25


def rest_app(
    herder: RestHerder,
    *,
    request_s: float = REQUEST_S,
    rebalance_s: float = REBALANCE_S,
    health_s: float = HEALTH_S,
    transport: httpx.AsyncBaseTransport | None = None,
    protection: RestProtection | None = None,
) -> Starlette:
    """The ASGI application of a worker.

    Args:
        herder: The worker.
        request_s: Time limit of a request.
        rebalance_s: Time limit of a request while the group rebalances.
        health_s: Time limit of the worker's health check.
        transport: For tests: replaces connections to other workers.
        protection: TLS and credentials of the workers.
    """
    protection = protection or RestProtection()
    api = RestApi(herder, request_s, rebalance_s, health_s, OtherWorkers(protection, transport))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await api.others.close()

    routes = [Route(e.path, api.handler(getattr(api, e.operation)), methods=[e.method]) for e in ENDPOINTS]
    handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _unexpected}
    guards = [Middleware(RequestGuard)]
    if protection.credentials is not None:
        guards.append(
            Middleware(Authentication, credentials=protection.credentials, signs_requests=herder.signs_requests)
        )
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan, middleware=guards)


class RestApi:
    """A method per operation of :data:`~streams_py.connect.rest.openapi.ENDPOINTS`."""

    def __init__(
        self, herder: RestHerder, request_s: float, rebalance_s: float, health_s: float, others: OtherWorkers
    ) -> None:
        self._herder = herder
        self._request_s = request_s
        self._rebalance_s = rebalance_s
        self._health_s = health_s
        self.others = others

    def handler(self, operation: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Wrap an operation: repeat it during rebalances, and forward it to the right worker."""

        async def handle(request: Request) -> Response:
            began_s = time.monotonic()
            deadline_s = began_s + self._request_s
            try:
                while True:
                    left_s = deadline_s - time.monotonic()
                    try:
                        return await self._once(operation, request, left_s)
                    except RebalanceExpectedError:
                        waited_s = time.monotonic() - began_s
                        if waited_s > self._rebalance_s or request.query_params.get("forward") == "false":
                            raise
                    await asyncio.sleep(_RETRY_S)
            except TimeoutError:
                return _error(
                    500, f"the worker did not handle this within {self._request_s:g} s; check that the brokers are up"
                )
            except ConnectError as error:
                return _error(error.status, str(error))
            except StreamsError as error:  # for example, no broker answers, or a topic could not be written
                return _error(500, str(error))

        return handle

    async def _once(
        self, operation: Callable[[Request], Awaitable[Response]], request: Request, left_s: float
    ) -> Response:
        try:
            return await asyncio.wait_for(operation(request), left_s)
        except NotLeaderError as error:
            return await self.others.forward(request, error, left_s)

    async def _do(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a call on a thread. If the request times out, the thread continues alone."""
        return await to_thread.run_sync(partial(call, *args, **kwargs), abandon_on_cancel=True)

    # -- the worker ----------------------------------------------------------------------------------------------------

    async def root(self, request: Request) -> Response:
        from streams_py import __version__

        cluster = await self._do(self._herder.cluster_id)
        return JSONResponse({"version": __version__, "commit": "unknown", "kafka_cluster_id": cluster})

    async def health(self, request: Request) -> Response:
        if not self._herder.is_ready():
            return JSONResponse({"status": "starting", "message": "Worker is still starting up."}, 503)
        try:
            await asyncio.wait_for(self._do(self._herder.ping), self._health_s)
        except (TimeoutError, ConnectError):
            sentence = f"Worker has not answered within {self._health_s:g} seconds; its log may say why."
            return JSONResponse({"status": "unhealthy", "message": sentence}, 500)
        return JSONResponse({"status": "healthy", "message": "Worker has started and handles requests."})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(page())

    async def metrics(self, request: Request) -> Response:
        return JSONResponse(await self._do(self._herder.metrics))

    async def workers(self, request: Request) -> Response:
        return JSONResponse(_group(await self._do(self._herder.group)))

    # -- connectors ----------------------------------------------------------------------------------------------------

    async def list_connectors(self, request: Request) -> Response:
        expand = set(request.query_params.getlist("expand"))
        names = await self._do(self._herder.connectors)
        if not expand & {"status", "info"}:
            return JSONResponse(list(names))
        found: dict[str, dict[str, Any]] = {}
        for name in names:
            with contextlib.suppress(NotFoundError):  # deleted meanwhile, or no status yet
                entry: dict[str, Any] = {}
                if "info" in expand:
                    entry["info"] = await self._do(self._info, name)
                    found[name] = entry
                if "status" in expand:
                    entry["status"] = await self._do(self._status, name)
                    found[name] = entry
        return JSONResponse(found)

    async def create_connector(self, request: Request) -> Response:
        new = NewConnector.of(await _json(request))
        await self._do(self._herder.create_connector, new.name, new.config, new.state)
        return await self._created(new.name, new.config)

    async def get_connector(self, request: Request) -> Response:
        return JSONResponse(await self._do(self._info, _name(request)))

    async def get_config(self, request: Request) -> Response:
        name = _name(request)
        config = await self._do(self._herder.config, name)
        return JSONResponse(dict(await self._do(self._herder.shown, name, config)))

    async def put_config(self, request: Request) -> Response:
        name = _name(request)
        config = config_of(await _json(request), name)
        if await self._do(self._herder.put_connector, name, config):
            return await self._created(name, config)
        return JSONResponse(await self._do(self._info, name, config))

    async def patch_config(self, request: Request) -> Response:
        name = _name(request)
        patch = patch_of(await _json(request), name)
        changed = {**await self._do(self._herder.config, name), **patch}
        config = {key: value for key, value in changed.items() if value is not None}
        await self._do(self._herder.put_connector, name, config)  # NotLeaderError on other workers than the leader
        return JSONResponse(await self._do(self._info, name, config))

    async def delete_connector(self, request: Request) -> Response:
        await self._do(self._herder.delete_connector, _name(request))
        return Response(status_code=204)

    async def get_status(self, request: Request) -> Response:
        return JSONResponse(await self._do(self._status, _name(request)))

    async def get_offsets(self, request: Request) -> Response:
        offsets = await self._do(self._herder.offsets, _name(request))
        return JSONResponse({"offsets": [{"partition": dict(p), "offset": dict(o)} for p, o in offsets]})

    async def alter_offsets(self, request: Request) -> Response:
        changes = offsets_of(await _json(request))
        told = await self._do(self._herder.alter_offsets, _name(request), changes)
        return JSONResponse({"message": _changed("altered", told)})

    async def reset_offsets(self, request: Request) -> Response:
        told = await self._do(self._herder.reset_offsets, _name(request))
        return JSONResponse({"message": _changed("reset", told)})

    async def pause(self, request: Request) -> Response:
        await self._do(self._herder.pause_connector, _name(request))
        return Response(status_code=202)

    async def resume(self, request: Request) -> Response:
        await self._do(self._herder.resume_connector, _name(request))
        return Response(status_code=202)

    async def stop(self, request: Request) -> Response:
        await self._do(self._herder.stop_connector, _name(request))
        return Response(status_code=204)

    async def restart(self, request: Request) -> Response:
        name, parameters = _name(request), request.query_params
        include_tasks, only_failed = flag(parameters, "includeTasks"), flag(parameters, "onlyFailed")
        await self._do(self._herder.restart_connector, name, include_tasks=include_tasks, only_failed=only_failed)
        if not include_tasks and not only_failed:
            return Response(status_code=204)
        return JSONResponse(await self._do(self._status, name), 202)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def get_tasks(self, request: Request) -> Response:
        name = _name(request)
        configs = await self._do(self._herder.task_configs, name)
        shown = [await self._do(self._herder.shown, name, config) for config in configs]
        tasks = [{"id": {"connector": name, "task": n}, "config": dict(config)} for n, config in enumerate(shown)]
        return JSONResponse(tasks)

    async def put_tasks(self, request: Request) -> Response:
        if self._herder.signs_requests() or SIGNATURE_HEADER in request.headers:
            key = self._herder.session_key
            verify(key.key if key else None, request.headers, await request.body())
        await self._do(self._herder.put_tasks, _name(request), task_configs_of(await _json(request)))
        return Response(status_code=204)

    async def get_task_status(self, request: Request) -> Response:
        task = _task(request)
        status = (await self._do(self._herder.status, task.connector)).tasks.get(task)
        if status is None:
            raise NotFoundError(f"task {task} has no status")
        return JSONResponse({"id": task.task, **_job(status)})

    async def restart_task(self, request: Request) -> Response:
        await self._do(self._herder.restart_task, _task(request))
        return Response(status_code=204)

    # -- responses -----------------------------------------------------------------------------------------------------

    async def _created(self, name: str, config: Any) -> Response:
        info = await self._do(self._info, name, config)
        return JSONResponse(info, 201, {"Location": f"/connectors/{quote(name, safe='')}"})

    def _info(self, name: str, config: Any = None) -> dict[str, Any]:
        """Describe a connector.

        ``config`` was written just now, and may not have been read back yet.
        """
        try:
            kind, count = self._herder.kind(name), len(self._herder.task_configs(name))
            config = self._herder.config(name) if config is None else config
        except NotFoundError:
            if config is None:
                raise
            kind, count = "unknown", 0
        tasks = [{"connector": name, "task": number} for number in range(count)]
        return {"name": name, "config": dict(self._herder.shown(name, config)), "tasks": tasks, "type": kind}

    def _status(self, name: str) -> dict[str, Any]:
        status = self._herder.status(name)
        if status.connector is None:
            raise NotFoundError(f"connector {name} has no status yet")
        tasks = [{"id": task.task, **_job(status.tasks[task])} for task in sorted(status.tasks)]
        return {"name": name, "connector": _job(status.connector), "tasks": tasks, "type": self._herder.kind(name)}


def _changed(done: str, told: bool) -> str:
    """Return Kafka Connect's sentences."""
    if told:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {done} in the system that the connector "
        "uses."
    )


def _group(view: GroupView) -> dict[str, Any]:
    workers = [
        {
            "worker_id": worker.worker_id,
            "leader": worker.is_leader,
            "static": None if worker.listed is None else _jobs(worker.listed),
            "jobs": _jobs(worker.owned),
        }
        for worker in view.workers
    ]
    unassigned = [
        {
            "kind": "task" if isinstance(job, TaskId) else "connector",
            "job": str(job),
            "could_run": list(said.could_run),
            "reason": said.reason,
        }
        for job, said in view.unassigned.items()
    ]
    return {"protocol": view.protocol, "delay_ms": view.delay_ms, "workers": workers, "unassigned": unassigned}


def _jobs(jobs: Jobs) -> dict[str, list[str]]:
    return {"connectors": sorted(jobs.connectors), "tasks": [str(task) for task in sorted(jobs.tasks)]}


def _job(status: JobStatusView) -> dict[str, Any]:
    body = {"state": status.state.value, "worker_id": status.worker_id}
    return body | ({"trace": status.trace} if status.trace else {})


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _task(request: Request) -> TaskId:
    number = request.path_params["task"]
    if not number.isdecimal():
        raise NotFoundError(f"connector {_name(request)} has no task {number!r}: the id of a task is a number")
    return TaskId(_name(request), int(number))


async def _json(request: Request) -> Any:
    return json_of(await request.body(), request.headers.get("Content-Type"))


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error_code": status, "message": message}, status)


async def _http_error(request: Request, error: HTTPException) -> JSONResponse:
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}: {request.method} {request.url.path}")


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    # starlette logs the traceback after this
    return _error(500, f"{type(error).__name__}; the worker's log contains the traceback")
