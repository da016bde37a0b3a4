"""The error for missing source topics, with their names."""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.errors import MissingSourceTopicError
from streams_py.ports import Admin, AdminError, AdminErrorKind
from streams_py.topology.physical.metadata import TopologyMetadata


def name_missing_sources(
    error: MissingSourceTopicError, metadata: TopologyMetadata, admin: Admin, servers: Sequence[str]
) -> MissingSourceTopicError:
    """Return the error with the names of the missing source topics.

    This client requests the topics itself: the leader may run elsewhere, but the user reads this client's error.
    """
    internal = {topic for sub in metadata.subtopologies.values() for topic in sub.repartition_sources}
    wanted = sorted(metadata.source_topics - internal)
    try:
        found = admin.describe_topics(wanted)
    except Exception:
        return error
    missing = [topic for topic in wanted if topic not in found or is_unknown(found[topic])]
    if not missing:
        return error
    return MissingSourceTopicError(
        f"source topic{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing on {', '.join(servers)}; "
        f"create {'them' if len(missing) > 1 else 'it'}, then start the application again"
    )


def is_unknown(answer: object) -> bool:
    """Whether a description of a topic says that the topic does not exist."""
    return isinstance(answer, AdminError) and answer.kind is AdminErrorKind.UNKNOWN_TOPIC
