import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;

/** Runs programs of the DSL that are given as data, one JSON object a line, through Kafka Streams' TopologyTestDriver. */
@SuppressWarnings({"unchecked", "rawtypes"})
public class DrawnPrograms {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();
    static final Serde<Object> TEXT = Serdes.serdeFrom(
        (topic, value) -> value == null ? null : ((String) value).getBytes(StandardCharsets.UTF_8),
        (topic, data) -> data == null ? null : new String(data, StandardCharsets.UTF_8));

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), answer);
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause.getCause() != null) cause = cause.getCause();
                answer.put("error", error.getClass().getSimpleName() + " <- " + cause);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    static void run(JsonNode program, ObjectNode answer) throws Exception {
        Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "unused:1");
        config.put("default.key.serde", Serdes.StringSerde.class.getName());
        config.put("default.value.serde", Serdes.StringSerde.class.getName());
        config.put("topology.optimization", program.get("optimization").asText());
        config.put("statestore.cache.max.bytes", program.get("cache").asText());
        config.put("dsl.store.suppliers.class", BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class.getName());
        config.put("__emit.interval.ms.kstreams.windowed.aggregation__", program.get("emit").asLong());
        config.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", program.get("emit").asLong());
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
        Program made = new Program(builder);
        for (JsonNode step : program.get("steps")) made.add(step);
        Topology topology = builder.build(config);
        answer.put("describe", topology.describe().toString());
        ArrayNode rows = answer.putArray("rows");
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.ofEpochMilli(1_000_000))) {
            Map<String, TestOutputTopic<byte[], byte[]>> outputs = new LinkedHashMap<>();
            Map<String, TestInputTopic<byte[], byte[]>> inputs = new HashMap<>();
            int number = 0;
            for (JsonNode given : program.get("inputs")) {
                try {
                    if (given.has("advance")) {
                        driver.advanceWallClockTime(Duration.ofMillis(given.get("advance").asLong()));
                    } else {
                        TestInputTopic<byte[], byte[]> topic = inputs.computeIfAbsent(given.get("topic").asText(),
                            name -> driver.createInputTopic(name, new ByteArraySerializer(), new ByteArraySerializer()));
                        RecordHeaders headers = new RecordHeaders();
                        for (JsonNode header : given.get("headers")) headers.add(header.get(0).asText(), bytes(header.get(1)));
                        topic.pipeInput(new TestRecord<>(bytes(given.get("key")), bytes(given.get("value")), headers,
                            given.get("timestamp").asLong()));
                    }
                } catch (IllegalArgumentException unknownTopic) {
                    if (!String.valueOf(unknownTopic.getMessage()).contains("Unknown topic")) throw unknownTopic;
                }
                for (String name : new TreeSet<>(driver.producedTopicNames())) {
                    TestOutputTopic<byte[], byte[]> output = outputs.computeIfAbsent(name,
                        topic -> driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
                    while (!output.isEmpty()) {
                        TestRecord<byte[], byte[]> record = output.readRecord();
                        ArrayNode row = rows.addArray();
                        row.add(number).add(name).add(hex(record.key())).add(hex(record.value()));
                        if (record.timestamp() == null) row.addNull(); else row.add(record.timestamp());
                        ArrayNode headers = row.addArray();
                        for (Header header : record.headers()) headers.addArray().add(header.key()).add(hex(header.value()));
                    }
                }
                number++;
            }
        }
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : HEX.parseHex(text.asText());
    }

    static String hex(byte[] data) {
        return data == null ? null : HEX.formatHex(data);
    }

    // -- functions of the programs --------------------------------------------------------------------------

    static String show(Object value) {
        if (value instanceof Windowed<?> w) return show(w.key()) + "@" + w.window().start() + ":" + w.window().end();
        return value == null ? "-" : value.toString();
    }

    static String tail(String text, int count) {
        return text.substring(Math.max(0, text.length() - count));
    }

    static boolean has(Object value, String part) {
        return value != null && show(value).contains(part);
    }

    static String first(Object value) {
        String text = (String) value;
        return text == null || text.isEmpty() ? null : text.substring(0, 1);
    }

    static String cat(Object left, Object right) {
        return tail(show(left) + "+" + show(right), 16);
    }

    static boolean test(String name, Object k, Object v) {
        return switch (name) {
            case "hasa" -> has(v, "a");
            case "hasb" -> has(v, "b");
            case "keya" -> show(k).contains("a");
            case "nonnull" -> v != null;
            case "nox" -> !has(v, "x");
            case "bothnn" -> k != null && v != null;
            default -> throw new IllegalStateException(name);
        };
    }

    static Object value(String name, Object k, Object v) {
        return switch (name) {
            case "upper" -> v == null ? null : show(v).toUpperCase();
            case "sharp" -> tail(show(v) + "#", 10);
            case "noc" -> has(v, "c") ? null : v;
            case "show" -> show(v);
            case "kv" -> tail(show(k) + ":" + show(v), 14);
            default -> throw new IllegalStateException(name);
        };
    }

    static Object key(String name, Object k, Object v) {
        return switch (name) {
            case "first" -> first(v);
            case "kfirst" -> first(k);
            case "same" -> k;
            case "show" -> k == null ? null : show(k);
            case "value" -> v;
            case "wkey" -> k == null ? null : ((Windowed<?>) k).key();
            default -> throw new IllegalStateException(name);
        };
    }

    static KeyValue<Object, Object> pair(String name, Object k, Object v) {
        return switch (name) {
            case "firstv" -> KeyValue.pair(first(v), v);
            case "kfirst" -> KeyValue.pair(first(k), v);
            case "swap" -> KeyValue.pair(v, k);
            case "same" -> KeyValue.pair(k, v);
            case "wkey" -> KeyValue.pair(k == null ? null : ((Windowed<?>) k).key(), show(k) + show(v));
            case "nullk" -> KeyValue.pair(has(v, "b") ? null : k, v);
            case "nullv" -> KeyValue.pair(first(v), has(v, "b") ? null : v);
            default -> throw new IllegalStateException(name);
        };
    }

    static Object aggregate(String name, Object v, Object a) {
        return switch (name) {
            case "push" -> tail(show(a) + "," + show(v), 12);
            case "pushu" -> tail(show(a) + "/" + show(v).toUpperCase(), 12);
            case "pushx" -> has(v, "x") ? null : tail(show(a) + "," + show(v), 12);
            case "sub" -> tail(show(a) + "~" + show(v), 12);
            case "subx" -> has(v, "c") ? null : tail(show(a) + "~" + show(v), 12);
            default -> throw new IllegalStateException(name);
        };
    }

    static Object reduce(String name, Object a, Object v) {
        return switch (name) {
            case "cat" -> tail(show(a) + show(v), 8);
            case "catx" -> has(v, "x") ? null : tail(show(a) + show(v), 8);
            case "sub" -> tail(show(a) + "~" + show(v), 8);
            case "subx" -> has(v, "x") ? null : tail(show(a) + "~" + show(v), 8);
            default -> throw new IllegalStateException(name);
        };
    }

    static Object join(String name, Object k, Object a, Object b) {
        return switch (name) {
            case "cat" -> cat(a, b);
            case "catx" -> has(a, "x") ? null : cat(a, b);
            case "kcat" -> tail(show(k) + "=" + cat(a, b), 20);
            default -> throw new IllegalStateException(name);
        };
    }

    static class Counter implements Processor<Object, Object, Object, Object> {
        final JsonNode step;
        ProcessorContext<Object, Object> context;
        KeyValueStore<Object, Long> store;

        Counter(JsonNode step) {
            this.step = step;
        }

        public void init(ProcessorContext<Object, Object> context) {
            this.context = context;
            store = context.getStateStore(step.get("store").asText());
            context.schedule(Duration.ofMillis(step.get("period").asLong()),
                step.get("wall").asBoolean() ? PunctuationType.WALL_CLOCK_TIME : PunctuationType.STREAM_TIME, this::punctuate);
        }

        void punctuate(long now) {
            List<KeyValue<Object, Long>> all = new ArrayList<>();
            try (KeyValueIterator<Object, Long> found = store.all()) {
                found.forEachRemaining(all::add);
            }
            for (KeyValue<Object, Long> entry : all) {
                context.forward(new Record<>(entry.key, "p" + entry.value, now));
                if (entry.value >= 3) store.delete(entry.key);
            }
        }

        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                context.forward(record.withValue("nk"));
                return;
            }
            Long old = store.get(record.key());
            long count = (old == null ? 0 : old) + 1;
            store.put(record.key(), count);
            context.forward(record.withValue(tail(show(record.value()) + "#" + count, 8)));
        }
    }

    static class Twice implements Processor<Object, Object, Object, Object> {
        ProcessorContext<Object, Object> context;

        public void init(ProcessorContext<Object, Object> context) {
            this.context = context;
        }

        public void process(Record<Object, Object> record) {
            RecordHeaders more = new RecordHeaders(record.headers());
            more.add("t", new byte[] {1});
            context.forward(record.withHeaders(more));
            context.forward(record.<Object>withKey(first(record.value())).withTimestamp(record.timestamp() + 1));
        }
    }

    static class Previous implements FixedKeyProcessor<Object, Object, Object> {
        final String name;
        FixedKeyProcessorContext<Object, Object> context;
        TimestampedKeyValueStore<Object, Object> store;

        Previous(String name) {
            this.name = name;
        }

        public void init(FixedKeyProcessorContext<Object, Object> context) {
            this.context = context;
            store = context.getStateStore(name);
        }

        public void process(FixedKeyRecord<Object, Object> record) {
            if (record.key() == null) return;
            ValueAndTimestamp<Object> old = store.get(record.key());
            if (record.value() == null) store.delete(record.key());
            else store.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
            String before = old == null ? "-" : old.value() + "/" + old.timestamp();
            context.forward(record.withValue(tail(before + ">" + show(record.value()), 14)));
        }
    }

    // -- steps ----------------------------------------------------------------------------------------------

    static class Program {
        final StreamsBuilder builder;
        final Map<String, Object> made = new HashMap<>();

        Program(StreamsBuilder builder) {
            this.builder = builder;
        }

        void add(JsonNode step) {
            List<Object> in = new ArrayList<>();
            if (step.has("in")) for (JsonNode name : step.get("in")) in.add(made.get(name.asText()));
            Object out = call(step, in);
            if (step.has("outs")) {
                List<Object> all = (List<Object>) out;
                for (int i = 0; i < all.size(); i++) made.put(step.get("outs").get(i).asText(), all.get(i));
            } else if (step.has("out")) {
                made.put(step.get("out").asText(), out);
            }
        }

        static Materialized mat(JsonNode step) {
            JsonNode mat = step.get("mat");
            if (mat == null) return null;
            Materialized<Object, Object, ?> kept =
                mat.has("store") ? Materialized.as(mat.get("store").asText()) : Materialized.with(null, null);
            if (mat.has("key")) kept = kept.withKeySerde(TEXT);
            if (mat.has("caching") && !mat.get("caching").asBoolean()) kept = kept.withCachingDisabled();
            if (mat.has("retention")) kept = kept.withRetention(Duration.ofMillis(mat.get("retention").asLong()));
            return kept;
        }

        static String fn(JsonNode step) {
            return step.get("fn").asText();
        }

        Object call(JsonNode step, List<Object> in) {
            String op = step.get("op").asText();
            Materialized mat = mat(step);
            KStream<Object, Object> stream = !in.isEmpty() && in.get(0) instanceof KStream s ? s : null;
            KTable<Object, Object> table = !in.isEmpty() && in.get(0) instanceof KTable t ? t : null;
            String fn = step.has("fn") ? fn(step) : null;
            boolean not = step.has("not") && step.get("not").asBoolean();
            switch (op) {
                case "stream": {
                    List<String> topics = new ArrayList<>();
                    for (JsonNode topic : step.get("topics")) topics.add(topic.asText());
                    return builder.stream(topics);
                }
                case "table":
                    return mat == null ? builder.table(step.get("topic").asText()) : builder.table(step.get("topic").asText(), mat);
                case "gtable":
                    return builder.globalTable(step.get("topic").asText());
                case "filter":
                    if (stream != null) return not ? stream.filterNot((k, v) -> test(fn, k, v)) : stream.filter((k, v) -> test(fn, k, v));
                    if (mat == null) return not ? table.filterNot((k, v) -> test(fn, k, v)) : table.filter((k, v) -> test(fn, k, v));
                    return not ? table.filterNot((k, v) -> test(fn, k, v), mat) : table.filter((k, v) -> test(fn, k, v), mat);
                case "mapValues":
                    if (stream != null) return stream.mapValues((k, v) -> value(fn, k, v));
                    return mat == null ? table.mapValues((k, v) -> value(fn, k, v)) : table.mapValues((k, v) -> value(fn, k, v), mat);
                case "transformValues": {
                    ValueTransformerWithKeySupplier<Object, Object, Object> supplier = () -> new ValueTransformerWithKey<>() {
                        public void init(org.apache.kafka.streams.processor.ProcessorContext context) { }

                        public Object transform(Object k, Object v) {
                            return value(fn, k, v);
                        }

                        public void close() { }
                    };
                    return mat == null ? table.transformValues(supplier) : table.transformValues(supplier, mat);
                }
                case "flatMapValues":
                    return stream.flatMapValues(v -> {
                        List<Object> parts = new ArrayList<>();
                        for (char c : show(v).substring(0, Math.min(3, show(v).length())).toCharArray()) parts.add("" + c);
                        return parts;
                    });
                case "flatMap":
                    return stream.flatMap((k, v) -> {
                        List<KeyValue<Object, Object>> parts = new ArrayList<>();
                        String text = show(v);
                        for (int i = 0; i < Math.min(2, text.length()); i++) parts.add(KeyValue.pair("" + text.charAt(i), show(k) + i));
                        return parts;
                    });
                case "map":
                    return stream.map((k, v) -> pair(fn, k, v));
                case "selectKey":
                    return stream.selectKey((k, v) -> key(fn, k, v));
                case "peek":
                    return stream.peek((k, v) -> { });
                case "merge":
                    return stream.merge((KStream) in.get(1));
                case "to":
                    stream.to(step.get("topic").asText());
                    return null;
                case "repartition":
                    return stream.repartition();
                case "toTable":
                    return mat == null ? stream.toTable() : stream.toTable(mat);
                case "toStream":
                    return fn == null ? table.toStream() : table.toStream((k, v) -> key(fn, k, v));
                case "groupByKey":
                    return step.has("name") ? stream.groupByKey(Grouped.as(step.get("name").asText())) : stream.groupByKey();
                case "groupBy":
                    return step.has("name") ? stream.groupBy((k, v) -> key(fn, k, v), Grouped.as(step.get("name").asText()))
                        : stream.groupBy((k, v) -> key(fn, k, v));
                case "tgroupBy":
                    return table.groupBy((k, v) -> pair(fn, k, v));
                case "count":
                case "reduce":
                case "aggregate":
                    return aggregated(step, op, (KGroupedStream) in.get(0), mat);
                case "cogroup":
                    return cogrouped(step, in, mat);
                case "tcount":
                    return mat == null ? ((KGroupedTable) in.get(0)).count() : ((KGroupedTable) in.get(0)).count(mat);
                case "treduce": {
                    Reducer<Object> adder = (a, v) -> DrawnPrograms.reduce(fn, a, v);
                    String sub = step.get("sub").asText();
                    Reducer<Object> subtractor = (a, v) -> DrawnPrograms.reduce(sub, a, v);
                    KGroupedTable<Object, Object> grouped = (KGroupedTable) in.get(0);
                    return mat == null ? grouped.reduce(adder, subtractor) : grouped.reduce(adder, subtractor, mat);
                }
                case "taggregate": {
                    Aggregator<Object, Object, Object> adder = (k, v, a) -> DrawnPrograms.aggregate(fn, v, a);
                    String sub = step.get("sub").asText();
                    Aggregator<Object, Object, Object> subtractor = (k, v, a) -> DrawnPrograms.aggregate(sub, v, a);
                    KGroupedTable<Object, Object> grouped = (KGroupedTable) in.get(0);
                    return mat == null ? grouped.aggregate(() -> "", adder, subtractor) : grouped.aggregate(() -> "", adder, subtractor, mat);
                }
                case "joinSS":
                    return joinStreams(step, stream, (KStream) in.get(1));
                case "joinST": {
                    ValueJoinerWithKey<Object, Object, Object, Object> joiner = (k, a, b) -> DrawnPrograms.join(fn, k, a, b);
                    KTable<Object, Object> other = (KTable) in.get(1);
                    return step.get("type").asText().equals("left") ? stream.leftJoin(other, joiner) : stream.join(other, joiner);
                }
                case "joinSG": {
                    ValueJoinerWithKey<Object, Object, Object, Object> joiner = (k, a, b) -> DrawnPrograms.join(fn, k, a, b);
                    String on = step.get("on").asText();
                    KeyValueMapper<Object, Object, Object> mapper = (k, v) -> key(on, k, v);
                    GlobalKTable<Object, Object> other = (GlobalKTable) in.get(1);
                    return step.get("type").asText().equals("left") ? stream.leftJoin(other, mapper, joiner) : stream.join(other, mapper, joiner);
                }
                case "joinTT": {
                    ValueJoiner<Object, Object, Object> joiner = (a, b) -> DrawnPrograms.join(fn, null, a, b);
                    KTable<Object, Object> other = (KTable) in.get(1);
                    return switch (step.get("type").asText()) {
                        case "inner" -> mat == null ? table.join(other, joiner) : table.join(other, joiner, mat);
                        case "left" -> mat == null ? table.leftJoin(other, joiner) : table.leftJoin(other, joiner, mat);
                        default -> mat == null ? table.outerJoin(other, joiner) : table.outerJoin(other, joiner, mat);
                    };
                }
                case "joinFK": {
                    ValueJoiner<Object, Object, Object> joiner = (a, b) -> DrawnPrograms.join(fn, null, a, b);
                    String on = step.get("on").asText();
                    java.util.function.Function<Object, Object> extractor = v -> key(on, null, v);
                    KTable<Object, Object> other = (KTable) in.get(1);
                    if (step.get("type").asText().equals("left"))
                        return mat == null ? table.leftJoin(other, extractor, joiner) : table.leftJoin(other, extractor, joiner, mat);
                    return mat == null ? table.join(other, extractor, joiner) : table.join(other, extractor, joiner, mat);
                }
                case "suppress":
                    return table.suppress((Suppressed) suppressed(step));
                case "process": {
                    if (!step.has("store")) return stream.process(Twice::new);
                    String store = step.get("store").asText();
                    StoreBuilder counts = Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(store), Serdes.String(), Serdes.Long());
                    builder.addStateStore(step.get("cached").asBoolean() ? counts.withCachingEnabled() : counts);
                    return stream.process(() -> new Counter(step), store);
                }
                case "processValues": {
                    String store = step.get("store").asText();
                    StoreBuilder rows = Stores.timestampedKeyValueStoreBuilder(Stores.inMemoryKeyValueStore(store), Serdes.String(), Serdes.String());
                    builder.addStateStore(step.get("cached").asBoolean() ? rows.withCachingEnabled() : rows);
                    return stream.processValues(() -> new Previous(store), store);
                }
                default:
                    throw new IllegalStateException(op);
            }
        }

        static Suppressed<?> suppressed(JsonNode step) {
            boolean nolog = step.get("nolog").asBoolean();
            if (step.get("kind").asText().equals("close")) {
                Suppressed.StrictBufferConfig buffer = Suppressed.BufferConfig.unbounded();
                return Suppressed.untilWindowCloses(nolog ? (Suppressed.StrictBufferConfig) buffer.withLoggingDisabled() : buffer);
            }
            Suppressed.EagerBufferConfig buffer =
                step.has("max") ? Suppressed.BufferConfig.maxRecords(step.get("max").asLong()) : Suppressed.BufferConfig.maxBytes(Long.MAX_VALUE);
            if (nolog) buffer = (Suppressed.EagerBufferConfig) buffer.withLoggingDisabled();
            return Suppressed.untilTimeLimit(Duration.ofMillis(step.get("ms").asLong()), buffer);
        }

        static Windows<?> timeWindows(JsonNode win) {
            TimeWindows windows = TimeWindows.ofSizeAndGrace(Duration.ofMillis(win.get("size").asLong()), Duration.ofMillis(win.get("grace").asLong()));
            return win.has("advance") ? windows.advanceBy(Duration.ofMillis(win.get("advance").asLong())) : windows;
        }

        static SlidingWindows sliding(JsonNode win) {
            return SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(win.get("size").asLong()), Duration.ofMillis(win.get("grace").asLong()));
        }

        static SessionWindows sessions(JsonNode win) {
            return SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(win.get("size").asLong()), Duration.ofMillis(win.get("grace").asLong()));
        }

        static Object merged(Object a, Object b) {
            return tail(show(a) + "&" + show(b), 12);
        }

        static Object aggregated(JsonNode step, String op, KGroupedStream<Object, Object> grouped, Materialized mat) {
            JsonNode win = step.get("win");
            String fn = step.has("fn") ? fn(step) : null;
            Reducer<Object> reducer = (a, v) -> DrawnPrograms.reduce(fn, a, v);
            Aggregator<Object, Object, Object> aggregator = (k, v, a) -> DrawnPrograms.aggregate(fn, v, a);
            if (win == null) {
                return switch (op) {
                    case "count" -> mat == null ? grouped.count() : grouped.count(mat);
                    case "reduce" -> mat == null ? grouped.reduce(reducer) : grouped.reduce(reducer, mat);
                    default -> mat == null ? grouped.aggregate(() -> "", aggregator) : grouped.aggregate(() -> "", aggregator, mat);
                };
            }
            boolean emit = win.has("emit") && win.get("emit").asBoolean();
            if (win.get("kind").asText().equals("session")) {
                SessionWindowedKStream<Object, Object> windowed = grouped.windowedBy(sessions(win));
                if (emit) windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
                Merger<Object, Object> merger = (k, a, b) -> merged(a, b);
                return switch (op) {
                    case "count" -> mat == null ? windowed.count() : windowed.count(mat);
                    case "reduce" -> mat == null ? windowed.reduce(reducer) : windowed.reduce(reducer, mat);
                    default -> mat == null ? windowed.aggregate(() -> "", aggregator, merger) : windowed.aggregate(() -> "", aggregator, merger, mat);
                };
            }
            TimeWindowedKStream<Object, Object> windowed =
                win.get("kind").asText().equals("sliding") ? grouped.windowedBy(sliding(win)) : grouped.windowedBy((Windows) timeWindows(win));
            if (emit) windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
            return switch (op) {
                case "count" -> mat == null ? windowed.count() : windowed.count(mat);
                case "reduce" -> mat == null ? windowed.reduce(reducer) : windowed.reduce(reducer, mat);
                default -> mat == null ? windowed.aggregate(() -> "", aggregator) : windowed.aggregate(() -> "", aggregator, mat);
            };
        }

        static Object cogrouped(JsonNode step, List<Object> in, Materialized mat) {
            CogroupedKStream<Object, Object> all = null;
            for (int i = 0; i < in.size(); i++) {
                String name = step.get("fns").get(i).asText();
                Aggregator<Object, Object, Object> aggregator = (k, v, a) -> DrawnPrograms.aggregate(name, v, a);
                KGroupedStream<Object, Object> grouped = (KGroupedStream) in.get(i);
                all = all == null ? grouped.cogroup(aggregator) : all.cogroup(grouped, aggregator);
            }
            Object once = aggregatedTogether(step, all, mat);
            return step.has("again") ? List.of(once, aggregatedTogether(step.get("again"), all, mat(step.get("again")))) : once;
        }

        static Object aggregatedTogether(JsonNode step, CogroupedKStream<Object, Object> all, Materialized mat) {
            JsonNode win = step.get("win");
            if (win == null) return mat == null ? all.aggregate(() -> "") : all.aggregate(() -> "", mat);
            if (win.get("kind").asText().equals("session")) {
                Merger<Object, Object> merger = (k, a, b) -> merged(a, b);
                SessionWindowedCogroupedKStream<Object, Object> windowed = all.windowedBy(sessions(win));
                return mat == null ? windowed.aggregate(() -> "", merger) : windowed.aggregate(() -> "", merger, mat);
            }
            TimeWindowedCogroupedKStream<Object, Object> windowed =
                win.get("kind").asText().equals("sliding") ? all.windowedBy(sliding(win)) : all.windowedBy((Windows) timeWindows(win));
            return mat == null ? windowed.aggregate(() -> "") : windowed.aggregate(() -> "", mat);
        }

        static Object joinStreams(JsonNode step, KStream<Object, Object> left, KStream<Object, Object> right) {
            JsonNode win = step.get("win");
            String fn = fn(step);
            JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(
                Duration.ofMillis(win.get("size").asLong()), Duration.ofMillis(win.get("grace").asLong()));
            if (win.has("before")) windows = windows.before(Duration.ofMillis(win.get("before").asLong()));
            if (win.has("after")) windows = windows.after(Duration.ofMillis(win.get("after").asLong()));
            ValueJoinerWithKey<Object, Object, Object, Object> joiner = (k, a, b) -> DrawnPrograms.join(fn, k, a, b);
            return switch (step.get("type").asText()) {
                case "inner" -> left.join(right, joiner, windows);
                case "left" -> left.leftJoin(right, joiner, windows);
                default -> left.outerJoin(right, joiner, windows);
            };
        }
    }
}
