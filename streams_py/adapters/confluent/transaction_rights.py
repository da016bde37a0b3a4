"""Find the missing right of a transaction: errors report that a right is missing, but don't name the resource."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import KafkaError

from streams_py.ports.rights import GROUP, TOPIC, TRANSACTIONAL_ID, missing_right

_BACKFILL: Final = "-backfill-"
_OWN_PART: Final = re.compile(rf"[0-9a-f-]{{36}}-\d+$|(?<={_BACKFILL})[0-9a-f]{{12}}-\d+_\d+$")
"""The end of a transactional id that is specific to a stream thread or to a task of a backfill. ``<application.id>-``
precedes it."""


def missing_transaction_right(
    errors: Iterable[KafkaError | None], transactional_id: str, *, written: Collection[str], committed: Collection[str]
) -> str | None:
    """Describe the missing right that one of these errors of a transaction reports; None when none of them does.

    Args:
        errors: The errors of the transaction.
        transactional_id: The transactional id.
        written: Topics that a broker does not allow this client to write.
        committed: Topics whose offsets are being added to the transaction.
    """
    prefix = _OWN_PART.sub("", transactional_id)
    for error in errors:
        match None if error is None else error.code():
            case KafkaError.TOPIC_AUTHORIZATION_FAILED if written:
                own = all(topic.startswith(prefix) for topic in written)
                return missing_right("WRITE", TOPIC, written, prefix=prefix if own else "")
            case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                return missing_right("WRITE", TRANSACTIONAL_ID, prefix=prefix)
            case KafkaError.GROUP_AUTHORIZATION_FAILED:
                if prefix.endswith(_BACKFILL):
                    return missing_right("READ", GROUP, prefix=prefix)
                return missing_right("READ", GROUP, [prefix.removesuffix("-")])
            case KafkaError.TOPIC_AUTHORIZATION_FAILED if committed:
                return missing_right("READ", TOPIC, committed)
    return None
