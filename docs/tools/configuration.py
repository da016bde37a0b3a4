"""The page of configuration keys, made from the fields of ``StreamsConfig`` and Java's defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from docs.tools.docstrings import markdown
from streams_py.config.client_keys import CLIENT_PREFIXES
from streams_py.config.help import default_of, key_of, meaning_of
from streams_py.config.keys import CLIENT_KEYS, RENAMED
from streams_py.config.streams_config import StreamsConfig, known_keys

JAVA: Final[dict[str, str]] = json.loads(Path(__file__).with_name("java_defaults.json").read_text(encoding="utf-8"))
"""Key -> default of Apache Kafka Streams 4.3.1 (``JavaDefaults.java`` prints it)."""

_SAME: Final = {
    "default.client.supplier": "DefaultKafkaClientSupplier",
    "default.timestamp.extractor": "FailOnInvalidTimestamp",
    "deserialization.exception.handler": "LogAndFailExceptionHandler",
    "dsl.store.suppliers.class": "RocksDBDslStoreSuppliers",
    "processing.exception.handler": "LogAndFailProcessingExceptionHandler",
    "production.exception.handler": "DefaultProductionExceptionHandler",
    "rack.aware.assignment.tags": "[]",
}
"""Java's class names of our defaults, where they differ."""

DIFFERENT: Final[frozenset[str]] = frozenset()
"""Keys whose default differs from Java's, on a real broker and at-least-once."""

INSTEAD: Final = {
    "allow.os.group.write.access": "Folders have the rights that the process's umask gives.",
    "built.in.metrics.version": "The metrics always have the version of Kafka 4.",
    "config.providers": "Read secrets in Python, or give `.toml` files made at start-up.",
    "default.list.key.serde.inner": "`serdes.list_of(inner)`.",
    "default.list.key.serde.type": "`serdes.list_of(inner)`.",
    "default.list.value.serde.inner": "`serdes.list_of(inner)`.",
    "default.list.value.serde.type": "`serdes.list_of(inner)`.",
    "dsl.store.format": "Stores keep headers where the operator needs them; you cannot choose.",
    "enable.metrics.push": "Read `KafkaStreams.metrics()`, and export it as you like.",
    "errors.dead.letter.queue.topic.name": '`DeadLetterQueue("topic")` as the handler.',
    "metadata.recovery.rebootstrap.trigger.ms": "A setting of the clients: set it with a client's prefix.",
    "metadata.recovery.strategy": "A setting of the clients: set it with a client's prefix.",
    "metric.reporters": "Read `KafkaStreams.metrics()`, and export it as you like.",
    "metrics.num.samples": "Rates are measured over fixed windows.",
    "metrics.sample.window.ms": "Rates are measured over fixed windows.",
    "processing.exception.handler.global.enabled": "Global stores call `processing.exception.handler`, too.",
    "processor.wrapper.class": "Wrap the processors where the topology is built.",
    "rocksdb.config.setter": "Memory is bounded for the whole process; there is nothing to set for one store.",
    "window.size.ms": "`serdes.time_windowed(inner, size)`.",
    "windowed.inner.class.serde": "`serdes.time_windowed(inner, size)`, `serdes.session_windowed(inner)`.",
}
"""Keys of Kafka Streams that do not exist here, and their replacements."""


def page() -> str:
    """The whole page."""
    parts = [_INTRO]
    for name, field in StreamsConfig.model_fields.items():
        key = key_of(name, field)
        if key:
            meaning, change = meaning_of(field)
            default = default_of(field)
            shown = f"`{default}`" if default not in ("", "required") else default or "none"
            java = java_default(key, default)
            parts.append(
                f"### `{key}` {{ #{key.replace('.', '-').replace('_', '-')} }}\n\nDefault: {shown}. {java}\n\n"
                f"{markdown(meaning)}\n\n*Change it* {markdown(change)}\n"
            )
    older = "".join(f"| `{old}` | `{new}` |\n" for old, new in sorted(RENAMED.items()))
    parts.append(
        f"## Older names\n\nBoth names mean the same; the newer one counts.\n\n| older | newer |\n|---|---|\n{older}"
    )
    missing = "".join(f"| `{key}` | {text} |\n" for key, text in sorted(INSTEAD.items()))
    parts.append(
        "## Keys of Kafka Streams that do not exist here\n\nThese keys are an error.\n\n"
        f"| key | instead |\n|---|---|\n{missing}"
    )
    keys = ", ".join(f"`{key}`" for key in sorted(CLIENT_KEYS - known_keys()))
    prefixes = ", ".join(f"`{prefix}`" for prefix in CLIENT_PREFIXES)
    parts.append(
        "## Keys of the Kafka clients\n\nThese reach every client. With a prefix, any key reaches only that client: "
        f"{prefixes}. Some keys have no effect there, because the application sets them: `group.id` (it is "
        "`application.id`), `client.id`, `bootstrap.servers`, `transactional.id`, `enable.auto.commit` and others. A "
        "warning says so."
        f"\n\n{keys}.\n"
    )
    return "\n".join(parts)


def java_default(key: str, default: str) -> str:
    """Return a sentence about Java's default of the same key."""
    if key not in JAVA:
        return "Kafka Streams does not have this key."
    if JAVA[key] == default or _SAME.get(key) == JAVA[key]:
        return "Kafka Streams has the same." if default != "required" else "In Kafka Streams, too."
    return f"Kafka Streams: `{JAVA[key] or 'none'}`."


_INTRO: Final = """# Configuration

On this page you can look up every configuration key, its default, and when to change it. `help(StreamsConfig)` prints
the same in a terminal.

`KafkaStreams(topology, config)` and `StreamsConfig.of` accept a mapping of dotted keys, keyword arguments
(`num_stream_threads=2`), or a `.toml` or `.properties` file. Keys and defaults are Kafka Streams' (4.3.1), if it has
them. A wrong key or value is an error at the start, which names the right one. Errors never contain secrets.

Some keys have a variable part:

- `topic.<key>` configures internal topics.
- `client.tag.<key>` sets a tag of this instance.
- `app.<anything>` is your own. Processors and assignors find it in their configuration.

## Keys of Kafka Streams
"""
