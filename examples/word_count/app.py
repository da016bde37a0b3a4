"""Word count as a Kafka Streams application. Start it several times; the processes share the work.

    python -m examples.word_count.app                            # on the embedded cluster
    BOOTSTRAP=localhost:9092 python -m examples.word_count.app   # on a broker

What to look at: this is the whole application. It reads lines from `text-lines` and writes counts to `word-counts`. The
library creates the internal topics and the state, and distributes the tasks.
"""

import os
import re

from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes


def word_count(lines: str = "text-lines", counts: str = "word-counts") -> Topology:
    """Count the words of the topic ``lines``, and write the counts to the topic ``counts``."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream(lines).flat_map_values(lambda line: re.findall(r"\w+", line.lower()))
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to(counts)
    return builder.build()


if __name__ == "__main__":
    config = {"application.id": "word-count", "bootstrap.servers": os.environ.get("BOOTSTRAP", "embedded")}
    KafkaStreams(word_count(), config).run()
