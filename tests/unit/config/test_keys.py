"""Every key of Kafka Streams 4.3.1 is supported, or its error names the alternative."""

from __future__ import annotations

import pytest

from streams_py.config.keys import CLIENT_KEYS, INSTEAD, RENAMED
from streams_py.config.streams_config import StreamsConfig, known_keys
from streams_py.errors import ConfigError

JAVA_KEYS = """
acceptable.recovery.lag allow.os.group.write.access application.id application.server bootstrap.servers
buffered.records.per.partition built.in.metrics.version cache.max.bytes.buffering client.id
commit.interval.ms connections.max.idle.ms default.client.supplier
default.deserialization.exception.handler default.dsl.store default.key.serde
default.production.exception.handler default.timestamp.extractor default.value.serde
deserialization.exception.handler dsl.store.format dsl.store.suppliers.class enable.metrics.push
ensure.explicit.internal.resource.naming errors.dead.letter.queue.topic.name group.protocol
log.summary.interval.ms max.task.idle.ms max.warmup.replicas metadata.max.age.ms metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms num.standby.replicas
num.stream.threads poll.ms probing.rebalance.interval.ms processing.exception.handler
processing.exception.handler.global.enabled processing.guarantee processor.wrapper.class
production.exception.handler rack.aware.assignment.non_overlap_cost rack.aware.assignment.strategy
rack.aware.assignment.tags rack.aware.assignment.traffic_cost receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms repartition.purge.interval.ms replication.factor
request.timeout.ms retry.backoff.ms rocksdb.config.setter security.protocol send.buffer.bytes
state.cleanup.delay.ms state.cleanup.dir.max.age.ms state.dir statestore.cache.max.bytes
task.assignor.class task.timeout.ms topology.optimization upgrade.from window.size.ms
windowstore.changelog.additional.retention.ms
""".split()
"""Constants of ``org.apache.kafka.streams.StreamsConfig``."""

UNDERSTOOD = known_keys() | CLIENT_KEYS | RENAMED.keys()


def test_every_key_of_java_is_understood_or_has_a_remedy() -> None:
    assert len(JAVA_KEYS) > 60
    assert set(JAVA_KEYS) <= UNDERSTOOD | INSTEAD.keys()
    assert not INSTEAD.keys() & UNDERSTOOD


@pytest.mark.parametrize("key", sorted(INSTEAD))
def test_key_that_does_not_exist_here_says_what_to_do(key: str) -> None:
    for spelt in (key, key.replace(".", "_")):
        with pytest.raises(ConfigError) as caught:
            StreamsConfig.of({"application.id": "a", "bootstrap.servers": "localhost:9092", spelt: "x"})
        assert INSTEAD[key] in str(caught.value)
        assert "did you mean" not in str(caught.value)


def test_dead_letter_queue_of_java_leads_to_the_handlers() -> None:
    with pytest.raises(ConfigError, match=r"deserialization\.exception\.handler.*DeadLetterQueue"):
        StreamsConfig.of(application_id="a", bootstrap_servers="x:1", errors_dead_letter_queue_topic_name="dead")
