"""Read state stores over HTTP. Each instance answers all queries, and forwards them to the instance with the partition.

Requires the extra ``query``. :class:`QueryService` is the service. :mod:`.reading` reads the stores of this instance,
:mod:`.routing` forwards queries to other instances, and :mod:`.app` defines the HTTP paths.
"""

try:
    from streams_py.query.service import QueryService
except ModuleNotFoundError as missing:
    raise ImportError(
        f'the query service requires {missing.name}: pip install "kafka-streams-py[query]"', name=missing.name
    ) from missing

__all__ = ["QueryService"]
