"""A worker of a Connect group, based on kafka-python's group coordinator (protocol ``connect``, metadata versions 0-3).

It uses private names of the tested kafka-python version, as :mod:`.classic.coordinator` does. It also keeps the result
of a finished join: if the join ends between two calls, the next call returns the result instead of sending another
JoinGroup.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, Protocol

from kafka import errors as kafka_errors
from kafka.coordinator.base import BaseCoordinator
from kafka.net.compat import KafkaNetClient

from streams_py.adapters.kafka_python.leaving import Leaving
from streams_py.adapters.kafka_python.network import close_client, close_with_dead_tasks
from streams_py.adapters.kafka_python.quiet_logs import limit_library_logs
from streams_py.adapters.kafka_python.settings import membership_settings
from streams_py.adapters.kafka_python.stored_group import GroupNotStoredError, StoredGroup
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.ports.rights import GROUP, missing_right

_FINAL_ERRORS: Final = (
    kafka_errors.InconsistentGroupProtocolError,
    kafka_errors.InvalidSessionTimeoutError,
    kafka_errors.InvalidGroupIdError,
    kafka_errors.GroupMaxSizeReachedError,
)
_CLIENT_SETTINGS: Final = ("group_instance_id", "exclude_internal_topics", "client_rack", "default_api_timeout_ms")
_CLOSE_MS: Final = 5_000
_ANSWER_BYTES_MAX: Final = 100_000_000
"""Size limit of one response. A leader's JoinGroup response has the metadata of all members, some of which is large."""


class _Handler(Protocol):
    """The member, see ``streams_py.connect.group.coordinator.GroupHandler``."""

    def protocols(self) -> list[tuple[str, bytes]]: ...
    def perform(
        self, leader: str, protocol: str, members: Mapping[str, bytes], generation: int
    ) -> dict[str, bytes]: ...
    def joined(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None: ...


class ConnectCoordinator:
    """The implementation of ``streams_py.connect.group.coordinator.Coordinator``.

    ``config`` has Kafka's dotted client keys, including security. No request is sent before :meth:`find` or
    :meth:`join`.
    """

    def __init__(
        self,
        handler: _Handler,
        *,
        bootstrap_servers: str,
        group_id: str,
        client_id: str,
        rebalance_timeout_ms: int,
        config: Mapping[str, Any],
    ) -> None:
        limit_library_logs()
        self._handler = handler
        self._settings = membership_settings(
            {**config, "max.poll.interval.ms": rebalance_timeout_ms},
            bootstrap_servers=bootstrap_servers,
            group_id=group_id,
            client_id=client_id,
        )
        self._servers = bootstrap_servers
        self._group = group_id
        settings = {key: value for key, value in self._settings.items() if key not in _CLIENT_SETTINGS}
        self._client = KafkaNetClient(
            **{key: value for key, value in settings.items() if key in _known_settings()},
            receive_message_max_bytes=_ANSWER_BYTES_MAX,
        )
        self._client.cluster.config["allow_auto_create_topics"] = False
        close_with_dead_tasks(self._client)
        self._client._net.start()
        self._base: _Base | None = None

    @property
    def is_joining(self) -> bool:
        """Whether a join is in progress."""
        return self._base is not None and (self._base.rejoining or self._base._join_task is not None)

    def is_unknown(self) -> bool:
        """Whether the broker of the group's coordinator is unknown."""
        return self._base is None or bool(self._base.coordinator_unknown())

    def find(self, timeout_ms: int) -> bool:
        """Find the group's coordinator. False when no broker answers in time."""
        try:
            return bool(self._connected(timeout_ms).ensure_coordinator_ready(timeout_ms=timeout_ms))
        except (BrokerUnavailableError, kafka_errors.KafkaTimeoutError):
            return False
        except kafka_errors.KafkaError as error:
            self._refuse(error)
            return False

    def needs_rejoin(self) -> bool:
        """Whether the worker has to (re)join its group."""
        return self._base is None or bool(self._base.need_rejoin())

    def request_rejoin(self) -> None:
        """Request a rebalance."""
        if self._base is not None:
            self._base.request_rejoin()

    def join(self, timeout_ms: int) -> bool:
        """(Re)join the group if needed. False when not done in time.

        Raises:
            BrokerUnavailableError: The join failed, and a retry may help.
            ConfigError: The group refuses the worker.
        """
        try:
            return bool(self._connected(timeout_ms).ensure_active_group(timeout_ms=timeout_ms))
        except BrokerUnavailableError:
            return False
        except kafka_errors.KafkaError as error:
            self._refuse(error)
            raise BrokerUnavailableError(f"joining the group {self._group} failed: {error}") from error

    def generation(self) -> tuple[int, str]:
        """Return the generation and member id; (-1, "") during a rebalance and without a membership."""
        stable = None if self._base is None else self._base.generation_if_stable()
        return (-1, "") if stable is None else (stable.generation_id, stable.member_id)

    def poll_heartbeat(self) -> None:
        """Keep the membership alive, and raise the error of a failed heartbeat."""
        if self._base is None:
            return
        try:
            self._base.poll_heartbeat()
        except kafka_errors.KafkaError as error:
            self._refuse(error)
            raise BrokerUnavailableError(f"heartbeats of the group {self._group}: {error}") from error

    def leave(self, reason: str) -> None:
        """Leave the group. Errors are ignored."""
        if self._base is not None:
            with contextlib.suppress(kafka_errors.KafkaError):
                self._base.leave(reason)

    def close(self) -> None:
        """Leave the group and close the connections."""
        base, self._base = self._base, None
        with contextlib.suppress(Exception):  # if no broker is reachable, the session timeout removes the member
            if base is not None:
                base.is_closing = True
                base._close_heartbeat()
                base.leave("the worker is being closed")
        close_client(self._client, _CLOSE_MS / 1000)

    def _connected(self, timeout_ms: int) -> _Base:
        if self._base is None:
            try:
                self._client._manager.bootstrap(timeout_ms)
            except kafka_errors.KafkaError as error:
                raise BrokerUnavailableError(f"no broker at {self._servers} has answered yet ({error})") from error
            self._base = _Base(self._client, self._handler, self._settings)
        return self._base

    def _refuse(self, error: Exception) -> None:
        """Raise ConfigError when a retry cannot help."""
        if isinstance(error, kafka_errors.InconsistentGroupProtocolError):
            raise ConfigError(
                f"group.id={self._group} is in use by a group that does not consist of Connect workers; choose another",
                key="group.id",
            ) from error
        if isinstance(error, kafka_errors.GroupAuthorizationFailedError):
            right = missing_right("READ", GROUP, [self._group])
            raise ConfigError(f"group.id={self._group} cannot be joined: {right}", key="group.id") from error
        if isinstance(error, _FINAL_ERRORS):
            raise ConfigError(f"group.id={self._group} cannot be joined: {error}", key="group.id") from error


def _known_settings() -> frozenset[str]:
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.selector import NetworkSelector

    return frozenset({*KafkaConnectionManager.DEFAULT_CONFIG, *NetworkSelector.DEFAULT_CONFIG})


class _Base(Leaving, BaseCoordinator):  # type: ignore[misc]  # kafka-python has no type information
    def __init__(self, client: Any, handler: _Handler, settings: Mapping[str, Any]) -> None:
        self._handler = handler
        self._finished: tuple[Any, bytes] | None = None
        super().__init__(
            client,
            group_id=settings["group_id"],
            session_timeout_ms=settings["session_timeout_ms"],
            heartbeat_interval_ms=settings["heartbeat_interval_ms"],
            max_poll_interval_ms=settings["max_poll_interval_ms"],
            retry_backoff_ms=settings["retry_backoff_ms"],
            request_timeout_ms=settings["request_timeout_ms"],
            api_version=client._manager.broker_version,
            metrics=None,
        )
        self._stored_group = StoredGroup(settings["group_id"], settings["retry_backoff_ms"])

    def leave(self, reason: str) -> None:
        self._net.run(self.leave_async, reason, _CLOSE_MS)

    def protocol_type(self) -> str:
        return "connect"

    def group_protocols(self) -> list[tuple[str, bytes]]:
        protocols = self._handler.protocols()
        self._stored_group.joining(sum(len(metadata) for _, metadata in protocols))
        return protocols

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> dict[str, bytes]:
        self._stored_group.lead(members)
        metadata = {member.member_id: bytes(member.metadata) for member in members}
        return self._handler.perform(leader_id, protocol, metadata, self._generation.generation_id)

    async def _do_join_and_sync_async(self) -> bytes:
        finished, self._finished = self._finished, None
        if finished is not None and finished[0] is self._generation:
            return finished[1]
        if self.is_closing:
            raise kafka_errors.Cancelled("this worker is leaving")
        try:
            answer = bytes(await super()._do_join_and_sync_async())
        except kafka_errors.UnknownError as raised:
            error = self._stored_group.judge(raised)
            if isinstance(error, GroupNotStoredError):
                await self._net.sleep(self._stored_group.pause_s())
            raise error from raised
        self._stored_group.joined()
        self._finished = (self._generation, answer)
        return answer

    async def _on_join_complete_async(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        self._finished = None
        self._handler.joined(generation, member_id, protocol, bytes(assignment))
