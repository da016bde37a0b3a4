import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** The topologies of state_programs.py on Kafka Streams for the JVM; each is started and stopped on command. */
public final class StateWorker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Map<String, KafkaStreams> RUNNING = new HashMap<>();
    private static volatile String error;

    public static void main(final String[] args) throws Exception {
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        in.readLine();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final JsonNode command = JSON.readTree(line);
            final Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("to", command.get("number").asInt());
            try {
                answer.put("answer", obey(command));
            } catch (final RuntimeException problem) {
                answer.put("problem", problem.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        RUNNING.values().forEach(KafkaStreams::close);
    }

    private static Object obey(final JsonNode command) {
        final String id = command.get("config").get("application.id").asText();
        if (command.get("do").asText().equals("stop")) {
            RUNNING.remove(id).close();
            return error;
        }
        final Properties config = new Properties();
        command.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        final StreamsBuilder builder = new StreamsBuilder();
        final JsonNode topics = command.get("topics");
        final String program = command.get("program").asText();
        describe(builder, program, topics.get(0).asText(), topics.get(1).asText())
            .to(topics.get(2).asText(), Produced.with(TEXT, TEXT));
        final Topology topology = builder.build(config);
        if (program.equals("read-only")) {
            topology.addReadOnlyStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("store"), TEXT, TEXT).withLoggingDisabled(),
                "rows", TEXT.deserializer(), TEXT.deserializer(), topics.get(1).asText(), "keeping", Keeping::new);
            topology.connectProcessorAndStateStores("looking", "store");
        }
        final KafkaStreams streams = new KafkaStreams(topology, config);
        error = null;
        streams.setUncaughtExceptionHandler(problem -> {
            error = problem + ", because of " + problem.getCause();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                .StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        RUNNING.put(id, streams);
        return null;
    }

    private static KStream<String, String> describe(
        final StreamsBuilder builder, final String program, final String left, final String right
    ) {
        final Consumed<String, String> texts = Consumed.with(TEXT, TEXT);
        switch (program) {
            case "plain":
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("store"), TEXT, TEXT));
                return builder.stream(left, texts).process(Joining::new, "store");
            case "timestamped":
                return grouped(builder, left).reduce(StateWorker::join, kept()).toStream();
            case "window":
                return grouped(builder, left).windowedBy(TimeWindows.ofSizeAndGrace(ms(10), ms(20)))
                    .reduce(StateWorker::join).toStream((key, value) -> show(key));
            case "sliding":
                return grouped(builder, left).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(20)))
                    .reduce(StateWorker::join).toStream((key, value) -> show(key));
            case "session":
                return grouped(builder, left).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(20)))
                    .reduce(StateWorker::join).toStream((key, value) -> show(key));
            case "suppress":
                return grouped(builder, left).windowedBy(TimeWindows.ofSizeAndGrace(ms(10), ms(5)))
                    .reduce(StateWorker::join)
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                    .toStream((key, value) -> show(key));
            case "outer join":
                return builder.stream(left, texts).outerJoin(
                    builder.stream(right, texts), StateWorker::pair,
                    JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(5)), StreamJoined.with(TEXT, TEXT, TEXT));
            case "versioned":
                final KTable<String, String> versions = builder.table(right, texts, Materialized.<String, String>as(
                    Stores.persistentVersionedKeyValueStore("store", ms(1000))).withKeySerde(TEXT).withValueSerde(TEXT));
                return builder.stream(left, texts).join(versions, StateWorker::pair);
            case "foreign key":
                return builder.table(left, texts).join(
                    builder.table(right, texts), value -> value.substring(0, 1), StateWorker::pair).toStream();
            case "global":
                return builder.stream(left, texts).join(
                    builder.globalTable(right, texts), (key, value) -> value.substring(0, 1), StateWorker::pair);
            case "plain window":
                builder.addStateStore(Stores.windowStoreBuilder(
                    Stores.persistentWindowStore("store", Duration.ofDays(1), ms(5), false), TEXT, TEXT));
                return builder.stream(left, texts).process(() -> new Remembering(false), "store");
            case "plain session":
                builder.addStateStore(Stores.sessionStoreBuilder(
                    Stores.persistentSessionStore("store", Duration.ofDays(1)), TEXT, TEXT));
                return builder.stream(left, texts).process(() -> new Remembering(true), "store");
            case "lru":
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.lruMap("store", 2), TEXT, TEXT));
                return builder.stream(left, texts).process(Joining::new, "store");
            case "inner join":
                return builder.stream(left, texts).join(
                    builder.stream(right, texts), StateWorker::pair,
                    JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(5)), StreamJoined.with(TEXT, TEXT, TEXT));
            case "plain in memory":
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("store"), TEXT, TEXT));
                return builder.stream(left, texts).process(Joining::new, "store");
            case "table in memory":
                return grouped(builder, left)
                    .reduce(StateWorker::join, Materialized.as(Stores.inMemoryKeyValueStore("store"))).toStream();
            case "window in memory":
                return grouped(builder, left)
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(10), ms(20)).advanceBy(ms(5)))
                    .reduce(StateWorker::join, Materialized.as(
                        Stores.inMemoryWindowStore("store", ms(60_000), ms(10), false)))
                    .toStream((key, value) -> show(key));
            case "sliding in memory":
                return grouped(builder, left).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(20)))
                    .reduce(StateWorker::join, Materialized.as(
                        Stores.inMemoryWindowStore("store", ms(60_000), ms(10), false)))
                    .toStream((key, value) -> show(key));
            case "session in memory":
                return grouped(builder, left).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(20)))
                    .reduce(StateWorker::join, Materialized.as(Stores.inMemorySessionStore("store", ms(60_000))))
                    .toStream((key, value) -> show(key));
            case "join in memory":
                return builder.stream(left, texts).outerJoin(
                    builder.stream(right, texts), StateWorker::pair,
                    JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(5)),
                    StreamJoined.with(TEXT, TEXT, TEXT)
                        .withDslStoreSuppliers(new BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers()));
            case "timestamped by processor":
                builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
                    Stores.persistentTimestampedKeyValueStore("store"), TEXT, TEXT));
                return builder.stream(left, texts).process(JoiningBefore::new, "store");
            case "timestamped window":
                builder.addStateStore(Stores.timestampedWindowStoreBuilder(
                    Stores.inMemoryWindowStore("store", Duration.ofDays(1), ms(5), false), TEXT, TEXT));
                return builder.stream(left, texts).process(RememberingTimed::new, "store");
            case "duplicates":
                builder.addStateStore(Stores.windowStoreBuilder(
                    Stores.persistentWindowStore("store", Duration.ofDays(1), ms(5), true), TEXT, TEXT));
                return builder.stream(left, texts).process(RememberingTwice::new, "store");
            case "time limit":
                return grouped(builder, left).reduce(StateWorker::join, kept())
                    .suppress(Suppressed.untilTimeLimit(ms(10), Suppressed.BufferConfig.unbounded())).toStream();
            case "final":
                return grouped(builder, left).windowedBy(TimeWindows.ofSizeAndGrace(ms(10), ms(20)))
                    .emitStrategy(EmitStrategy.onWindowClose())
                    .reduce(StateWorker::join, Materialized.<String, String, WindowStore<Bytes, byte[]>>as("store")
                        .withRetention(ms(60_000)))
                    .toStream((key, value) -> show(key));
            case "final session":
                return grouped(builder, left).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(20)))
                    .emitStrategy(EmitStrategy.onWindowClose())
                    .reduce(StateWorker::join, Materialized.<String, String, SessionStore<Bytes, byte[]>>as("store")
                        .withRetention(ms(60_000)))
                    .toStream((key, value) -> show(key));
            case "join buffer":
                final KTable<String, String> asOf = builder.table(right, texts, Materialized.<String, String>as(
                    Stores.persistentVersionedKeyValueStore("store", ms(1000))).withKeySerde(TEXT).withValueSerde(TEXT));
                return builder.stream(left, texts).join(
                    asOf, StateWorker::pair, Joined.with(TEXT, TEXT, TEXT, "buffered", ms(6)));
            case "source changelog":
                return builder.stream(left, texts).leftJoin(builder.table(right, texts, kept()), StateWorker::pair);
            case "read-only":
                return builder.stream(left, texts).process(Looking::new, Named.as("looking"));
            case "several partitions":
                final KStream<String, String> spread = builder.stream(left, texts)
                    .selectKey((key, value) -> value.substring(0, 1))
                    .repartition(Repartitioned.with(TEXT, TEXT).withName("spread").withNumberOfPartitions(4));
                final KStream<String, String> pairs = spread.join(
                    builder.stream(right, texts), StateWorker::pair,
                    JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(200)),
                    StreamJoined.with(TEXT, TEXT, TEXT).withStoreName("pairs"));
                final KStream<Windowed<String>, String> windows = spread.groupByKey()
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(10), ms(200)).advanceBy(ms(5)))
                    .emitStrategy(EmitStrategy.onWindowClose())
                    .reduce(StateWorker::join, Materialized.<String, String, WindowStore<Bytes, byte[]>>as("finals")
                        .withRetention(ms(60_000)))
                    .toStream();
                windows.repartition(Repartitioned.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 10), TEXT)
                    .withName("windows").withNumberOfPartitions(4));
                final KStream<String, String> finals = windows.selectKey((key, value) -> show(key));
                final KStream<String, String> grouped = spread
                    .toTable(Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("rows"))
                    .groupBy((key, value) -> KeyValue.pair(key + key, value), Grouped.with("groups", TEXT, TEXT))
                    .reduce(StateWorker::join, (before, value) -> join(before, "-"), kept()).toStream();
                return pairs.merge(finals).merge(grouped);
            case "grouped table":
                return builder.table(left, texts, Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("rows"))
                    .groupBy((key, value) -> KeyValue.pair(value.substring(0, 1), value), Grouped.with(TEXT, TEXT))
                    .reduce(StateWorker::join, (before, value) -> join(before, "-"), kept()).toStream();
            default:
                throw new IllegalArgumentException(program);
        }
    }

    private static KGroupedStream<String, String> grouped(final StreamsBuilder builder, final String topic) {
        return builder.stream(topic, Consumed.with(TEXT, TEXT)).groupByKey();
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept() {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("store");
    }

    private static Duration ms(final long count) {
        return Duration.ofMillis(count);
    }

    private static String join(final String before, final String value) {
        final String joined = before + value;
        return joined.substring(Math.max(0, joined.length() - 12));
    }

    private static String pair(final String left, final String right) {
        return left + "&" + right;
    }

    private static String show(final Windowed<String> windowed) {
        return windowed.key() + "@" + windowed.window().start() + "-" + windowed.window().end();
    }

    private static final class Remembering implements Processor<String, String, String, String> {
        private final boolean sessions;
        private ProcessorContext<String, String> context;
        private StateStore store;

        private Remembering(final boolean sessions) {
            this.sessions = sessions;
        }

        @Override
        public void init(final ProcessorContext<String, String> given) {
            context = given;
            store = given.getStateStore("store");
        }

        @Override
        @SuppressWarnings("unchecked")
        public void process(final Record<String, String> record) {
            final long at = record.timestamp();
            final StringBuilder now = new StringBuilder(record.value());
            if (sessions) {
                final SessionStore<String, String> kept = (SessionStore<String, String>) store;
                try (KeyValueIterator<Windowed<String>, String> found = kept.findSessions(record.key(), at - 10, at)) {
                    found.forEachRemaining(entry -> now.append(entry.value));
                }
                kept.put(new Windowed<>(record.key(), new SessionWindow(at - at % 5, at)), cut(now));
            } else {
                final WindowStore<String, String> kept = (WindowStore<String, String>) store;
                try (WindowStoreIterator<String> found = kept.fetch(record.key(), at - 10, at)) {
                    found.forEachRemaining(entry -> now.append(entry.value));
                }
                kept.put(record.key(), cut(now), at - at % 5);
            }
            context.forward(record.withValue(now.toString()));
        }

        private static String cut(final StringBuilder text) {
            return text.substring(0, Math.min(9, text.length()));
        }
    }

    private static final class RememberingTimed extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final TimestampedWindowStore<String, String> kept = context().getStateStore("store");
            final long at = record.timestamp();
            final StringBuilder now = new StringBuilder(record.value());
            try (WindowStoreIterator<ValueAndTimestamp<String>> found = kept.fetch(record.key(), at - 10, at)) {
                found.forEachRemaining(entry -> now.append(entry.value.value()).append(entry.value.timestamp() % 1000));
            }
            kept.put(record.key(), ValueAndTimestamp.make(Remembering.cut(now), at - 1), at - at % 5);
            context().forward(record.withValue(now.toString()));
        }
    }

    private static final class RememberingTwice extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final WindowStore<String, String> kept = context().getStateStore("store");
            final long at = record.timestamp();
            final StringBuilder now = new StringBuilder(record.value());
            try (WindowStoreIterator<String> found = kept.fetch(record.key(), at - 10, at)) {
                found.forEachRemaining(entry -> now.append(entry.value));
            }
            kept.put(record.key(), now.substring(0, Math.min(4, now.length())), at);
            kept.put(record.key(), now.substring(0, Math.min(3, now.length())) + "'", at);
            context().forward(record.withValue(now.toString()));
        }
    }

    private static final class JoiningBefore extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final TimestampedKeyValueStore<String, String> kept = context().getStateStore("store");
            final ValueAndTimestamp<String> row = kept.get(record.key());
            final String now = row == null ? record.value() : join(row.value(), record.value());
            final boolean deletes = record.value().startsWith("s");
            kept.put(record.key(), deletes ? null : ValueAndTimestamp.make(now, record.timestamp() - 1));
            context().forward(record.withValue(
                now + " after " + (row == null ? "none" : Long.toString(row.timestamp() % 1000))));
        }
    }

    private static final class Keeping extends ContextualProcessor<String, String, Void, Void> {
        @Override
        public void process(final Record<String, String> record) {
            context().<KeyValueStore<String, String>>getStateStore("store").put(record.key(), record.value());
        }
    }

    private static final class Looking extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final KeyValueStore<String, String> rows = context().getStateStore("store");
            context().forward(record.withValue(pair(record.value(), rows.get(record.key()))));
        }
    }

    private static final class Joining implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, String> store;

        @Override
        public void init(final ProcessorContext<String, String> given) {
            context = given;
            store = given.getStateStore("store");
        }

        @Override
        public void process(final Record<String, String> record) {
            final String before = store.get(record.key());
            final String now = before == null ? record.value() : join(before, record.value());
            store.put(record.key(), now);
            context.forward(record.withValue(now));
        }
    }
}
