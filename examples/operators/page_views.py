"""Page views by region: joins a stream of views with a table of users, and counts in windows of one minute.

Topics: ``page-views`` (user -> page), ``user-regions`` (user -> region), out: ``views-by-region`` (region@minute ->
views).
"""

from __future__ import annotations

import os

from streams_py import KafkaStreams, StreamsBuilder, TimeWindows, Topology, Windowed, serdes


def region_at_minute(window: Windowed[str], views: int) -> str:
    return f"{window.key}@{window.start // 60_000}"


def build_topology() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    regions = builder.table("user-regions", store="regions")
    views = builder.stream("page-views")
    in_region = views.left_join(regions, lambda page, region: region or "unknown", value=serdes.STRING, name="region")
    (
        in_region.group_by(lambda user, region: region, key=serdes.STRING, value=serdes.STRING, name="by-region")
        .windowed_by(TimeWindows.of(60_000))
        .count(store="views")
        .to_stream(region_at_minute)
        .to("views-by-region", key=serdes.STRING, value=serdes.INT64)
    )
    return builder.build()


if __name__ == "__main__":
    config = {"application.id": "page-views", "bootstrap.servers": os.environ.get("BOOTSTRAP", "embedded")}
    KafkaStreams(build_topology(), config).run()
