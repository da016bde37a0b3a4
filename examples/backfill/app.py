"""The application: visits per page. The same function runs live and on Spark."""

from streams_py import StreamsBuilder, Topology, serdes


def visits() -> Topology:
    """Count the pages in the lines of the topic ``visits``."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    pages = builder.stream("visits").flat_map_values(str.split)
    pages.group_by(lambda _, page: page).count(store="by-page")
    return builder.build()
