"""The clients of a command: the cluster that ``--bootstrap`` and ``--config`` name."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from streams_py.cli.options import LOCAL, settings_of
from streams_py.clients.factory import KafkaClients
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.ports import Admin, GroupAdmin, RecordConsumer
from streams_py.state.directory.run_directory import default_run_directory

_TIMEOUT_MS: Final = 15_000


class Connection:
    """The clients of one command for one cluster.

    Implements :class:`~streams_py.inspection.gather.Cluster`.
    """

    def __init__(self, clients: KafkaClients, name: str, *, embedded: bool, state_dirs: Collection[str] = ()) -> None:
        self.clients = clients
        self.state_dirs = state_dirs
        """Directories below which instances of applications with these settings have their directories."""
        self._name = name
        self.bootstrap = clients.bootstrap
        self.admin: Admin = clients.admin()
        self._groups: GroupAdmin | None = None
        self._embedded = embedded

    @property
    def groups(self) -> GroupAdmin:
        """The admin client for groups, created on first use.

        Raises:
            ConfigError: The cluster is the embedded one, which never answers requests about groups.
        """
        if self._embedded:
            raise ConfigError(
                "the embedded cluster gives no information about groups; name a Kafka broker with "
                "--bootstrap host:port",
                key="bootstrap.servers",
            )
        if self._groups is None:
            self._groups = self.clients.group_admin(timeout_ms=_TIMEOUT_MS)
        return self._groups

    def consumer(self) -> RecordConsumer:
        """Return a consumer that joins no group."""
        return self.clients.main_consumer(self._name)

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()
        self.admin.close()


@contextlib.contextmanager
def connected(bootstrap: str | None, config: Path | None, name: str, default: str = LOCAL) -> Iterator[Connection]:
    """Yield a connection that has the settings of the file ``config``, and close it afterwards.

    ``bootstrap`` names the cluster; without it the file does, and without both ``default``.

    Raises:
        ConfigError: A setting is wrong, or the cluster rejects the credentials.
        BrokerUnavailableError: No broker answers.
    """
    patience = {
        ClientRole.ADMIN.key("default.api.timeout.ms"): _TIMEOUT_MS,
        ClientRole.PRODUCER.key("max.block.ms"): _TIMEOUT_MS,
    }
    merged = StreamsConfig.of({**patience, **settings_of(bootstrap, config, default), "application.id": name})
    with (
        contextlib.closing(KafkaClients(merged)) as clients,
        contextlib.closing(_checked(clients, name, merged)) as connection,
    ):
        yield connection


def _checked(clients: KafkaClients, name: str, config: StreamsConfig) -> Connection:
    try:
        clients.check_connection(must_answer=True)
    except BrokerUnavailableError as away:
        raise BrokerUnavailableError(f"{away}; start the broker, or name another one with --bootstrap") from None
    state_dirs = [config.state_dir]
    if "state_dir" not in config.model_fields_set:
        state_dirs.append(default_run_directory())
    return Connection(clients, name, embedded=config.embedded, state_dirs=state_dirs)
