"""The parts around the group members of a client and of a supervisor: who has died, and for whom a join waits."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Clients
from streams_py.runtime.group.cluster_id import ClusterId
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.runtime.group.join_wait import JoinWait
from streams_py.runtime.group.own_members import OwnMembers
from streams_py.runtime.group.sibling_watch import SiblingWatch
from streams_py.runtime.group.transport import JoinObserver
from streams_py.state.directory.run_directory import LockedFolder, run_directories
from streams_py.state.directory.state_directory import StateDirectory

_SESSION_MS: Final = 45_000
"""Kafka's default of ``session.timeout.ms``."""


def chosen_state_dir(config: StreamsConfig) -> str | None:
    """Return ``state.dir`` if it is set."""
    return config.state_dir if "state_dir" in config.model_fields_set else None


class MembersOfClient(JoinObserver):
    """Puts the members of a client on record, and does what helps while one of them waits for the group.

    Args:
        folder: Returns the directory that the client has locked; None without one.
    """

    def __init__(
        self,
        config: StreamsConfig,
        clients: Clients,
        own_members: OwnMembers,
        folder: Callable[[], LockedFolder | None],
    ) -> None:
        session_s = config.number_for(ClientRole.MAIN_CONSUMER, "session.timeout.ms", _SESSION_MS) / 1_000
        self._own_members = own_members
        self._wait = JoinWait(
            clients.group_admin,
            config.application_id,
            session_s,
            own_members.ids,
            lambda: None if (locked := folder()) is None else locked.application,
        )

    def joining(self, thread: int, member_id: str, generation: int) -> None:
        """Put the member on record."""
        self._own_members.joining(thread, member_id, generation)

    def waits(self, waited_s: float) -> None:
        """Remove the members of the former run. Log a long wait."""
        self._own_members.remove_predecessor()
        self._wait.note(waited_s)


class _Supervisor:
    """A supervisor in the place of the instance that watches the others. It has no directory."""

    directory = None

    def __init__(self, cluster_id: ClusterId) -> None:
        self._cluster_id = cluster_id

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, as records have it; None until a broker has answered."""
        try:
            return self._cluster_id.get() or ""
        except BrokerUnavailableError:
            return None


@contextlib.contextmanager
def watching_processes(config: StreamsConfig, clients: Clients, directory: StateDirectory) -> Iterator[None]:
    """Remove the members of processes of the application that die, inside the context. For their supervisor.

    The processes watch one another, too. The supervisor also removes the members of the last of them, if members on
    other hosts can take over.

    Args:
        directory: A state directory that is not open.
    """
    if config.embedded or sys.platform != "linux":
        yield
        return
    group = config.application_id
    with contextlib.ExitStack() as opened:
        admin = clients.admin()
        opened.callback(admin.close)
        watch = SiblingWatch(
            directory.path if directory.is_persistent else run_directories(chosen_state_dir(config), group),
            _Supervisor(ClusterId(admin)),
            group,
            DeadMembers(clients.group_admin, group, spares_last=True),
        )
        watch.start()
        opened.callback(watch.close)
        yield
