"""Scoring in batches: the model gets up to 256 rows per call, or fewer if they arrived within 20 ms.

Topics: ``readings`` (sensor -> JSON list of numbers), out: ``scores`` (sensor -> score).
"""

from __future__ import annotations

from collections.abc import Sequence

from streams_py import StreamsBuilder, Topology, serdes

Reading = list[float]


class Model:
    """A placeholder for your model. ``predict`` is called once per batch."""

    def predict(self, rows: Sequence[Reading]) -> list[float]:
        return [sum(row) / len(row) if row else 0.0 for row in rows]


def build_topology(model: Model) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.JSON)
    scores = builder.stream("readings").map_batch(model.predict, max_records=256, max_ms=20, value=serdes.FLOAT64)
    scores.to("scores")
    return builder.build()
