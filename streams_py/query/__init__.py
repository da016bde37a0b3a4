"""Stores read over HTTP: each instance answers for all, by asking the one that has what is wanted.

Needs the extra ``query``. :class:`QueryService` serves; :mod:`.reading` reads the stores of this instance,
:mod:`.routing` asks the others, :mod:`.app` has the addresses.
"""

try:
    from streams_py.query.service import QueryService
except ModuleNotFoundError as missing:
    raise ImportError(
        f'the query service needs {missing.name}: pip install "kafka-streams-py[query]"', name=missing.name
    ) from missing

__all__ = ["QueryService"]
