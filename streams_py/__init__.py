"""Kafka Streams for Python, byte-compatible with Apache Kafka Streams, with the assignor in your hands.

    from streams_py import KafkaStreams, StreamsBuilder, serdes

    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to("counts")

    if __name__ == "__main__":
        KafkaStreams(builder.build(), {"application.id": "words", "bootstrap.servers": "embedded"}).run()

Start the program in several processes, and they share the work. ``embedded`` is a small broker on this machine; for a
real cluster, only the address changes. ``streams-py new app words`` creates a project with this program and a test.

* Describe a topology: :class:`StreamsBuilder`, :class:`KStream`, :class:`KTable`, or :class:`Topology` and
  :class:`Processor`; :class:`TimeWindows`, :class:`SessionWindows` and other windows.
* Convert keys and values to bytes: :mod:`streams_py.serdes`, :class:`SchemaRegistry`.
* Run it: :class:`KafkaStreams`. ``help(StreamsConfig)`` lists every setting with its default and when to change it.
* Test it: :class:`streams_py.testing.TopologyTestDriver`, without a broker.
* Control the task assignment: :mod:`streams_py.assignment`.
* Errors: all are a :class:`StreamsError`, and their messages say what to do.

Everything public is here, except for these public modules: ``streams_py.serdes``, ``streams_py.assignment`` (custom
task assignors), ``streams_py.testing`` (the test kit), ``streams_py.connect.api`` (custom connectors), and the names in
``__all__`` of ``streams_py.backtest``, ``streams_py.telemetry`` and ``streams_py.spark``.

Names are loaded on first use (PEP 562), so that importing this package is fast: a program that only describes a
topology loads no Kafka client. ``__init__.pyi`` lists all names, for type checkers and for this module.
"""

from importlib import import_module as _import_module

_homes: dict[str, str] = {}
"""Public name -> module. Filled on the first access."""


def _read_homes() -> dict[str, str]:
    import re
    from importlib.resources import files

    stub = files(__name__).joinpath("__init__.pyi").read_text(encoding="utf-8")
    return {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \w+$", stub, re.MULTILINE)}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("kafka-streams-py")
    if not _homes:
        _homes.update(_read_homes())
    if name == "__all__":
        return sorted(_homes)
    home = _homes.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _import_module(f"{home}.{name}") if home == __name__ else getattr(_import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
