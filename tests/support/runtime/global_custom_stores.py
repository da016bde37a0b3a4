"""A topology with a custom store of a global table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streams_py import Processor, Record, StreamsBuilder, Topology, custom_store, serdes
from tests.support.state.custom_stores import TopStore

TEXTS: dict[str, Any] = {"key": serdes.STRING, "value": serdes.STRING}


class Ranking(TopStore):
    """A score per key, with the methods of a mapping."""

    place = "everywhere"

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, player: object) -> bool:
        return player in self._scores

    def __getitem__(self, player: str) -> int:
        return self._scores[player]

    def __setitem__(self, player: str, score: int) -> None:
        self.add(player, score)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._scores))


class Fill(Processor[str, str, None, None]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("top").add(record.key, int(record.value))


def topology(ask: Callable[[Any, Record[str, str]], object]) -> Topology:
    class Ask(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            answer = ask(self.context.get_state_store("top"), record)
            self.context.forward(record.with_value(str(answer)))

    builder = StreamsBuilder(**TEXTS)
    builder.add_global_store(custom_store("top", Ranking, logging=False), "scores", Fill)
    builder.stream("in").process(Ask).to("out", **TEXTS)
    return builder.build()
