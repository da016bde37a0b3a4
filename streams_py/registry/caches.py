"""Caches of schemas with a limited size.

The writer of a record chooses its schema id. confluent-kafka's caches keep each schema forever, so a writer with many
schemas could fill the memory. These caches remove the schemas that were not used for the longest time. A schema that is
needed again is requested again.

This module imports the extra ``registry``; import it where a serializer or deserializer is created.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka.schema_registry.common.schema_registry_client import Schema, _SchemaCache

ENTRIES_MAX: Final = 1000
"""Maximum number of schemas in a cache, as in Confluent's serializers for Java."""
TEXT_CHARS_MAX: Final = 16 << 20
"""Maximum size of the texts of all schemas in a cache. One larger schema is kept alone."""
PARSED_CHARS_MAX: Final = 2 << 20
"""The same for parsed schemas, including their references. They take up to 25 times the memory of their texts."""
_NO_ENTRY: Final = (object(), None)


class SchemaCache:
    """A thread-safe mapping whose keys or values are schemas. It replaces a dict in confluent-kafka.

    Args:
        size_of: Returns the size of an entry, given the key and the value.
        is_parsed: Whether the values are parsed schemas.
    """

    def __init__(self, size_of: Callable[[Any, Any], int], *, is_parsed: bool = False) -> None:
        self._size_of = size_of
        self.is_parsed = is_parsed
        self._sizes: dict[Any, int] = {}
        self._lock = threading.RLock()
        self._entries: OrderedDict[Any, Any] = OrderedDict()
        self._chars = 0
        self._keeping = 0
        self._last: tuple[Any, Any] = _NO_ENTRY
        """The entry that was used last."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return an entry, and note that it was used."""
        last = self._last
        if last[0] is key:  # the hash of a schema takes longer than all the rest
            return last[1]
        with self._lock:
            if key not in self._entries:
                return default
            self._entries.move_to_end(key)
            value = self._entries[key]
            self._last = key, value
            return value

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._lock:
            self._last = _NO_ENTRY
            size = max(self._sizes.get(key, 0), self._size_of(key, value))
            self._remove(key)
            self._entries[key] = value
            self._sizes[key] = size
            self._chars += self._sizes[key]
            self._trim()

    def resize(self, key: Any, size: int) -> None:
        """Set the size of an entry, if it exists."""
        with self._lock:
            if key in self._entries:
                self._chars += size - self._sizes[key]
                self._sizes[key] = size
                self._trim()

    def size(self, key: Any, default: int) -> int:
        """Return the size of an entry."""
        return self._sizes.get(key, default)

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove and return an entry."""
        with self._lock:
            value = self._entries.get(key, default)
            self._remove(key)
            return value

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries, the least recently used first."""
        with self._lock:
            return list(self._entries.items())

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()
            self._sizes.clear()
            self._chars = 0
            self._last = _NO_ENTRY

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep all entries inside the ``with`` block. Several threads may do this at the same time."""
        with self._lock:
            self._keeping += 1
        try:
            yield
        finally:
            with self._lock:
                self._keeping -= 1
                self._trim()

    def _trim(self) -> None:
        chars_max = PARSED_CHARS_MAX if self.is_parsed else TEXT_CHARS_MAX
        while not self._keeping and (
            len(self._entries) > ENTRIES_MAX or (self._chars > chars_max and len(self._entries) > 1)
        ):
            self._remove(next(iter(self._entries)))

    def _remove(self, key: Any) -> None:
        if key in self._entries:
            del self._entries[key]
            self._chars -= self._sizes.pop(key)
            self._last = _NO_ENTRY


class BoundedClientCache(_SchemaCache):
    """The cache of a registry client, with the same methods as confluent-kafka's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._by_id = SchemaCache(lambda _, found: _chars(found[1]))
        self._by_guid = SchemaCache(lambda _, schema: _chars(schema))
        self._ids = SchemaCache(lambda key, _: _chars(key[1]))
        self._registered_by_id = SchemaCache(lambda _, found: _chars(found.schema))
        self._registered_by_version = SchemaCache(lambda _, found: _chars(found.schema))
        self._registered_by_schema = SchemaCache(lambda key, _: _chars(key[1]))

    def set_schema(self, subject: str | None, schema_id: int | None, guid: str | None, schema: Any) -> None:
        if schema_id is not None:
            self._by_id[subject, schema_id] = guid, schema
            self._ids[subject, schema] = schema_id
        if guid is not None:
            self._by_guid[guid] = schema

    def set_registered_schema(self, schema: Any, registered_schema: Any) -> None:
        subject, schema_id = registered_schema.subject, registered_schema.schema_id
        self.set_schema(subject, schema_id, registered_schema.guid, schema)
        if schema_id is not None:
            self._registered_by_id[subject, schema_id] = registered_schema
        self._registered_by_version[subject, registered_schema.version] = registered_schema
        self._registered_by_schema[subject, schema] = registered_schema

    def get_schema_by_id(self, subject: str | None, schema_id: int) -> Any:
        return self._by_id.get((subject, schema_id))

    def get_schema_by_guid(self, guid: str) -> Any:
        return self._by_guid.get(guid)

    def get_id_by_schema(self, subject: str, schema: Any) -> Any:
        return self._ids.get((subject, schema))

    def get_registered_by_subject_schema(self, subject: str, schema: Any) -> Any:
        return self._registered_by_schema.get((subject, schema))

    def get_registered_by_subject_id(self, subject: str, schema_id: int) -> Any:
        return self._registered_by_id.get((subject, schema_id))

    def get_registered_by_subject_version(self, subject: str, version: int) -> Any:
        return self._registered_by_version.get((subject, version))

    @property
    def schema_index(self) -> Any:  # type: ignore[override]  # an attribute of confluent-kafka's class
        """Subject -> schema -> id, of the schemas in the cache."""
        index: dict[str | None, dict[Any, int]] = {}
        for (subject, schema), schema_id in self._ids.items():
            index.setdefault(subject, {})[schema] = schema_id
        return index

    def remove_by_subject(self, subject: str) -> None:
        self.clear()

    def remove_by_subject_version(self, subject: str, version: int) -> None:
        self.clear()

    def clear(self) -> None:
        for cache in (self._by_id, self._by_guid, self._ids, self._registered_by_id, self._registered_by_schema):
            cache.clear()
        self._registered_by_version.clear()

    @contextmanager
    def keep_references(self) -> Iterator[None]:
        """Keep referenced schemas inside the ``with`` block, so that checked references are not requested again."""
        with self._registered_by_version.keep():
            yield


def bound_caches(serde: Any) -> None:
    """Limit the size of the caches of a serializer or deserializer of confluent-kafka."""
    serde._parsed_schemas.parsed_schemas = SchemaCache(lambda schema, _: _chars(schema), is_parsed=True)
    if hasattr(serde, "_validators"):
        serde._validators = SchemaCache(lambda schema, _: parsed_size(serde, schema), is_parsed=True)


def parsed_size(serde: Any, schema: Any) -> int:
    """Return the size of a parsed schema in the cache of a serializer or deserializer, including its references."""
    known = serde._parsed_schemas.parsed_schemas
    return known.size(schema, _chars(schema)) if isinstance(known, SchemaCache) else _chars(schema)


def _chars(schema: Schema) -> int:
    return len(schema.schema_str or "")
