"""The clients that one application needs."""

from __future__ import annotations

from typing import Protocol

from streams_py.ports.admin import Admin
from streams_py.ports.changelogs import ChangelogSorter
from streams_py.ports.groups import GroupAdmin
from streams_py.ports.membership import Membership, MembershipListener
from streams_py.ports.records import RecordConsumer, RecordProducer
from streams_py.ports.transactions import TransactionAdmin, TransactionalProducer


class Clients(Protocol):
    """The factory for an application instance's clients. Names are as in Kafka Streams: ``<thread>-consumer`` etc."""

    def check_connection(self) -> None: ...  # ConfigError: the cluster refuses the login; no error while it is down
    def main_consumer(self, thread_name: str) -> RecordConsumer: ...
    def restore_consumer(self, thread_name: str) -> RecordConsumer: ...
    def changelog_sorter(self, thread_name: str) -> ChangelogSorter | None: ...  # None: none is available now
    def global_consumer(self, client_id: str) -> RecordConsumer: ...
    def producer(self, thread_name: str) -> RecordProducer: ...
    def global_producer(self, thread_name: str) -> RecordProducer: ...
    def transactional_producer(self, thread_name: str, transactional_id: str) -> TransactionalProducer: ...
    def admin(self) -> Admin: ...
    def transaction_admin(self) -> TransactionAdmin: ...  # with exactly-once only; connects on first use
    def group_admin(self) -> GroupAdmin: ...
    def membership(self, thread_name: str, thread_index: int, listener: MembershipListener) -> Membership: ...
    def close(self) -> None: ...  # releases shared resources; the caller closes each client
