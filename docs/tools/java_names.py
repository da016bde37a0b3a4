"""The counterpart of each public class of Kafka Streams 4.3.1, as data for the page of all classes.

A method that is not listed has the same name in ``snake_case`` here, on the first name in the text of its class. ``*``
applies to all methods that are not listed. Texts are Markdown. A test looks up each name in backticks in
``streams_py``, unless it has a character other than letters, ``_`` and dots (``grace=``), or is a configuration key.
"""

from __future__ import annotations

from typing import Final

Methods = dict[str, str]

_FUNCTION = "a function"
_KEYWORDS = "keywords of the call that takes it in Java"
_HANDLER = "`log_and_continue` or `log_and_fail`"
_SUPPLIER = "part of the store's declaration"
_MOCK = "not here: use `testing.TopologyTestDriver` with a topology that contains the processor"
_WITH_HEADERS = "not here: a store keeps headers where the operator needs them, you cannot choose"
_DEPRECATED = "deprecated in Java"


def _all(text: str) -> Methods:
    return {"*": text}


CLASSES: Final[dict[str, tuple[str, Methods]]] = {
    # org.apache.kafka.streams
    "AutoOffsetReset": (
        "`ResetPolicy`",
        {
            "earliest": "`ResetPolicy.EARLIEST`",
            "latest": "`ResetPolicy.LATEST`",
            "byDuration": "not here",
            "none": "`auto.offset.reset = none` of the configuration, for all sources without a policy",
        },
    ),
    "ClientInstanceIds": ("not here: no metrics are pushed to brokers (KIP-714)", _all("not here")),
    "CloseOptions": (
        "`KafkaStreams.close`",
        {
            "timeout": "`timeout=`, seconds",
            "withTimeout": "`timeout=`, seconds",
            "groupMembershipOperation": "`leave_group=`, or `leave.group.on.close`",
            "withGroupMembershipOperation": "`leave_group=`, or `leave.group.on.close`",
        },
    ),
    "CloseOptions.GroupMembershipOperation": ("`KafkaStreams.close`: `leave_group=`", {}),
    "DslStoreFormat": (_WITH_HEADERS, _all("not here")),
    "GroupProtocol": (
        "not here: applications use the classic protocol; `streams-py inspect` shows both",
        _all("not here"),
    ),
    "KafkaClientSupplier": (
        "`KafkaClients`",
        {
            "getAdmin": "`KafkaClients.admin`",
            "getConsumer": "`KafkaClients.main_consumer`, `KafkaClients.membership`",
            "getGlobalConsumer": "`KafkaClients.global_consumer`",
            "getProducer": "`KafkaClients.producer`, `KafkaClients.transactional_producer`",
            "getRestoreConsumer": "`KafkaClients.restore_consumer`",
        },
    ),
    "KafkaStreams": (
        "`KafkaStreams`",
        {
            "cleanUp": "`KafkaStreams.clean_up`",
            "clientInstanceIds": "not here: no metrics are pushed to brokers (KIP-714)",
            "hasStartedOrFinishedShuttingDown": "`KafkaStreams.state`, see `State`",
            "isPaused": "not here: the caller of `KafkaStreams.pause` knows",
            "isRunningOrRebalancing": "`KafkaStreams.is_ready`, `State.is_running_or_rebalancing`",
            "metadataForAllStreamsClients": "`KafkaStreams.all_metadata`",
            "processStreamThread": "`KafkaStreams.metadata_for_local_threads`",
            "setGlobalStateRestoreListener": "`KafkaStreams`: `restore_listener=`",
            "setStandbyUpdateListener": "`KafkaStreams`: `standby_listener=`",
            "setStateListener": "`KafkaStreams`: `on_state=`",
            "setUncaughtExceptionHandler": "`KafkaStreams`: `on_error=`",
            "validateIsRunningOrRebalancing": "what needs a running client raises `StreamsNotStartedError`",
        },
    ),
    "KafkaStreams.CloseOptions": (f"`KafkaStreams.close` ({_DEPRECATED})", {}),
    "KafkaStreams.State": (
        "`State`",
        {
            "hasCompletedShutdown": "`State.is_final`",
            "hasNotStarted": "`State.CREATED`",
            "hasStartedOrFinishedShuttingDown": "`State.is_final`, `State.PENDING_SHUTDOWN`, `State.PENDING_ERROR`",
            "isShuttingDown": "`State.PENDING_SHUTDOWN`, `State.PENDING_ERROR`",
            "isValidTransition": "not here: only the client changes its state",
        },
    ),
    "KafkaStreams.StateListener": ("`KafkaStreams`: `on_state=`", _all("a function of the new state and the old one")),
    "KeyQueryMetadata": ("`KeyQueryMetadata`", {}),
    "KeyValue": ("a tuple of key and value", _all("a tuple")),
    "LagInfo": (
        "`LagInfo`",
        {
            "currentOffsetPosition": "`LagInfo.position`",
            "endOffsetPosition": "`LagInfo.end`",
            "offsetLag": "`LagInfo.lag`",
        },
    ),
    "StoreQueryParameters": (
        "`KafkaStreams.store`",
        {
            "enableStaleStores": "`stale=True`",
            "staleStoresEnabled": "`stale=True`",
            "fromNameAndType": "the name, and `kind=`",
            "queryableStoreType": "`kind=`",
            "storeName": "the name",
            "partition": "`partition=`",
            "withPartition": "`partition=`",
        },
    ),
    "StreamsBuilder": ("`StreamsBuilder`", {"newTopology": "not here: `StreamsBuilder.build` makes the topology"}),
    "StreamsConfig": (
        "`StreamsConfig`, or a plain mapping",
        {
            "adminClientPrefix": "the prefix `admin.*`",
            "clientTagPrefix": "the prefix `client.tag.*`",
            "consumerPrefix": "the prefix `consumer.*`",
            "globalConsumerPrefix": "the prefix `global.consumer.*`",
            "mainConsumerPrefix": "the prefix `main.consumer.*`",
            "producerPrefix": "the prefix `producer.*`",
            "restoreConsumerPrefix": "the prefix `restore.consumer.*`",
            "topicPrefix": "the prefix `topic.*`",
            "configDef": "`help(StreamsConfig)` lists every key",
            "main": "`help(StreamsConfig)` lists every key",
            "getAdminConfigs": "`StreamsConfig.settings_for`",
            "getGlobalConsumerConfigs": "`StreamsConfig.settings_for`",
            "getMainConsumerConfigs": "`StreamsConfig.settings_for`",
            "getProducerConfigs": "`StreamsConfig.settings_for`",
            "getRestoreConsumerConfigs": "`StreamsConfig.settings_for`",
            "getClientTags": "`StreamsConfig.client_tags`",
            "getKafkaClientSupplier": "`StreamsConfig.default_client_supplier`",
            "defaultKeySerde": "`StreamsConfig.default_key_serde`",
            "isStreamsProtocolEnabled": "not here: applications use the classic protocol",
            "postProcessParsedConfig": "not here: internal to Java",
            "verifyTopologyOptimizationConfigs": "`StreamsConfig.topology_optimization` is checked when it is given",
        },
    ),
    "StreamsConfig.InternalConfig": ("not here: internal to Java", _all("not here")),
    "StreamsMetadata": (
        "`StreamsMetadata`",
        {
            "host": "`StreamsMetadata.host`, its first part",
            "hostInfo": "`StreamsMetadata.host`",
            "port": "`StreamsMetadata.host`, its second part",
            "stateStoreNames": "`StreamsMetadata.stores`",
            "topicPartitions": "`StreamsMetadata.partitions`",
            "standbyStateStoreNames": "`StreamsMetadata.standby_stores`",
            "standbyTopicPartitions": "`StreamsMetadata.standby_partitions`",
        },
    ),
    "StreamsMetrics": (
        "`ProcessorMetrics`",
        {
            "addSensor": "`ProcessorMetrics.add_rate_total_sensor`",
            "metrics": "`ProcessorMetrics.metrics`, `KafkaStreams.metrics`",
            "removeSensor": "not here: metrics end with their task",
        },
    ),
    "TaskMetadata": (
        "`TaskMetadata`",
        {
            "taskId": "`TaskMetadata.id`",
            "topicPartitions": "`TaskMetadata.partitions`",
            "endOffsets": "`KafkaStreams.all_local_store_partition_lags`",
            "timeCurrentIdlingStarted": "not here",
        },
    ),
    "TestInputTopic": (
        "`testing.InputTopic`",
        {
            "pipeInput": "`testing.InputTopic.send`",
            "pipeKeyValueList": "`testing.InputTopic.send_all`",
            "pipeRecordList": "`testing.InputTopic.send_records`",
            "pipeValueList": "`testing.InputTopic.send_values`",
        },
    ),
    "TestOutputTopic": (
        "`testing.OutputTopic`",
        {
            "getQueueSize": "`testing.OutputTopic.__len__`",
            "readKeyValue": "`testing.OutputTopic.read_pair`",
            "readKeyValuesToList": "`testing.OutputTopic.read_pairs`",
            "readKeyValuesToMap": "`testing.OutputTopic.read_to_dict`",
            "readRecord": "`testing.OutputTopic.read`",
            "readRecordsToList": "`testing.OutputTopic.read_all`",
            "readValuesToList": "`testing.OutputTopic.read_values`",
        },
    ),
    "ThreadMetadata": (
        "`ThreadMetadata`",
        {
            "threadName": "`ThreadMetadata.name`",
            "threadState": "`ThreadMetadata.state`",
            "adminClientId": "not here: `streams-py inspect` shows the members of a group with their clients",
            "consumerClientId": "not here: `streams-py inspect` shows the members of a group with their clients",
            "producerClientIds": "not here: `streams-py inspect` shows the members of a group with their clients",
            "restoreConsumerClientId": "not here: `streams-py inspect` shows the members of a group with their clients",
        },
    ),
    "Topology": ("`Topology`", {}),
    "Topology.AutoOffsetReset": (f"`ResetPolicy` ({_DEPRECATED})", {}),
    "TopologyConfig": (
        "`StreamsBuilder.build` takes what a topology needs of the configuration",
        {
            "getTaskConfig": "not here: internal to Java",
            "isNamedTopology": "not here: named topologies do not exist",
            "resolveDslStoreSuppliers": "`StreamsConfig.dsl_store_suppliers_class`",
        },
    ),
    "TopologyConfig.InternalConfig": ("not here: internal to Java", _all("not here")),
    "TopologyConfig.TaskConfig": ("not here: internal to Java", {}),
    "TopologyDescription": (
        "`Topology.describe`, whose text is Java's",
        {"globalStores": "`Topology.global_stores`", "subtopologies": "`Topology.subtopologies`"},
    ),
    **{
        f"TopologyDescription.{name}": (
            "`Topology.subtopologies`, `Topology.nodes`",
            _all("lines of `Topology.describe`"),
        )
        for name in ("GlobalStore", "Node", "Processor", "Sink", "Source", "Subtopology")
    },
    "TopologyTestDriver": (
        "`testing.TopologyTestDriver`",
        {
            "advanceWallClockTime": "`testing.TopologyTestDriver.advance_wall_clock`",
            "createInputTopic": "`testing.TopologyTestDriver.input_topic`",
            "createOutputTopic": "`testing.TopologyTestDriver.output_topic`",
            "getAllStateStores": "`testing.TopologyTestDriver.stores`",
            "producedTopicNames": "`testing.TopologyTestDriver.produced_topics`",
            "close": "`testing.TopologyTestDriver.close`",
            "metrics": "`testing.TopologyTestDriver.metrics`",
            "*": "`testing.TopologyTestDriver.store`, of any kind",
        },
    ),
    # errors
    "errors.BrokerNotFoundException": (f"`BrokerUnavailableError` ({_DEPRECATED})", {}),
    "errors.DefaultProductionExceptionHandler": ("`log_and_fail`", _all(_FUNCTION)),
    "errors.DeserializationExceptionHandler": ("`DeserializationHandler`, `DeadLetterQueue`", _all(_FUNCTION)),
    "errors.DeserializationExceptionHandler.DeserializationHandlerResponse": (f"`Answer` ({_DEPRECATED})", {}),
    "errors.ProcessingExceptionHandler": ("`ProcessingHandler`, `DeadLetterQueue`", _all(_FUNCTION)),
    "errors.ProcessingExceptionHandler.ProcessingHandlerResponse": (f"`Answer` ({_DEPRECATED})", {}),
    "errors.ProductionExceptionHandler": ("`ProductionHandler`, `DeadLetterQueue`", _all(_FUNCTION)),
    "errors.ProductionExceptionHandler.ProductionExceptionHandlerResponse": (f"`Answer` ({_DEPRECATED})", {}),
    **{
        f"errors.{kind}ExceptionHandler.Response": (
            "`Response`, or an `Answer` alone",
            {
                "deadLetterQueueRecords": "`Response.dead_letters`",
                "fail": "`Answer.FAIL`",
                "result": "`Response.answer`",
                "resume": "`Answer.CONTINUE`",
                **({"retry": "`Answer.RETRY`"} if kind == "Production" else {}),
            },
        )
        for kind in ("Deserialization", "Processing", "Production")
    },
    **{
        f"errors.{kind}ExceptionHandler.Result": ("`Answer`", {})
        for kind in ("Deserialization", "Processing", "Production")
    },
    "errors.ProductionExceptionHandler.SerializationExceptionOrigin": ("`Origin`", {}),
    "errors.ErrorHandlerContext": (
        "`ErrorContext`",
        {
            "processorNodeId": "`ErrorContext.node`",
            "timestamp": "`ErrorContext.timestamp_ms`",
            "sourceRawKey": "`ErrorContext.raw`, `RawRecord.key`",
            "sourceRawValue": "`ErrorContext.raw`, `RawRecord.value`",
        },
    ),
    "errors.InternalTopicsAlreadySetupException": ("not here: `KafkaStreams` makes internal topics itself", {}),
    "errors.InvalidStateStoreException": ("`InvalidStateStoreError`", {}),
    "errors.InvalidStateStorePartitionException": ("`InvalidStateStorePartitionError`", {}),
    "errors.LockException": ("`LockError`", {}),
    "errors.LogAndContinueExceptionHandler": ("`log_and_continue`", _all(_FUNCTION)),
    "errors.LogAndContinueProcessingExceptionHandler": ("`log_and_continue`", _all(_FUNCTION)),
    "errors.LogAndFailExceptionHandler": ("`log_and_fail`", _all(_FUNCTION)),
    "errors.LogAndFailProcessingExceptionHandler": ("`log_and_fail`", _all(_FUNCTION)),
    "errors.MisconfiguredInternalTopicException": ("`TaskAssignmentError`, of the leader", {}),
    "errors.MissingInternalTopicsException": (
        "not here: `KafkaStreams` makes internal topics itself",
        _all("not here"),
    ),
    "errors.MissingSourceTopicException": ("`MissingSourceTopicError`", {}),
    "errors.ProcessorStateException": ("`StateError`", {}),
    "errors.StateStoreMigratedException": ("`StateStoreMigratedError`", {}),
    "errors.StateStoreNotAvailableException": ("`StateStoreNotAvailableError`", {}),
    "errors.StreamsException": (
        "`StreamsError`",
        {"taskId": "the message names the task", "setTaskId": "the message names the task"},
    ),
    "errors.StreamsNotStartedException": ("`StreamsNotStartedError`", {}),
    "errors.StreamsRebalancingException": ("`StateStoreNotAvailableError`", {}),
    "errors.StreamsStoppedException": ("`StateStoreNotAvailableError`", {}),
    "errors.StreamsUncaughtExceptionHandler": ("`KafkaStreams`: `on_error=`", _all("a function of the error")),
    "errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse": ("`StreamThreadExceptionResponse`", {}),
    "errors.TaskAssignmentException": ("`TaskAssignmentError`", {}),
    "errors.TaskCorruptedException": ("`errors.TaskCorruptedError`", _all("its attribute tasks")),
    "errors.TaskIdFormatException": ("ValueError, of `TaskId.parse`", {}),
    "errors.TaskMigratedException": ("`errors.TaskMigratedError`", {}),
    "errors.TopologyException": ("`TopologyError`", {}),
    "errors.UnknownStateStoreException": ("`UnknownStateStoreError`", {}),
    "errors.UnknownTopologyException": ("not here: named topologies do not exist", {}),
    # kstream
    **{
        f"kstream.{name}": (_FUNCTION, _all(_FUNCTION))
        for name in (
            "Aggregator",
            "ForeachAction",
            "Initializer",
            "KeyValueMapper",
            "Merger",
            "Predicate",
            "Reducer",
            "ValueJoiner",
            "ValueMapper",
        )
    },
    "kstream.ValueJoinerWithKey": ("a function, given as `with_key=`", _all(_FUNCTION)),
    "kstream.ValueMapperWithKey": ("a function, given as `with_key=`", _all(_FUNCTION)),
    "kstream.Branched": (
        "`BranchedKStream.branch`",
        {
            "as": "`name=`",
            "withName": "`name=`",
            "withConsumer": "take the stream from what `BranchedKStream.default_branch` returns",
            "withFunction": "take the stream from what `BranchedKStream.default_branch` returns",
        },
    ),
    "kstream.BranchedKStream": ("`BranchedKStream`", {}),
    "kstream.CogroupedKStream": ("`CogroupedKStream`", {}),
    "kstream.Consumed": (
        "`StreamsBuilder.stream`",
        _all("`key=`, `value=`, `timestamp_extractor=`, `reset_policy=`, `name=`"),
    ),
    "kstream.EmitStrategy": (
        "`EmitStrategy`",
        {
            "onWindowClose": "`EmitStrategy.ON_WINDOW_CLOSE`",
            "onWindowUpdate": "`EmitStrategy.ON_WINDOW_UPDATE`",
            "type": "the strategy itself",
        },
    ),
    "kstream.EmitStrategy.StrategyType": ("`EmitStrategy`", _all("not here: internal to Java")),
    "kstream.ForeachProcessor": (f"`KStream.foreach` ({_DEPRECATED})", _all(_FUNCTION)),
    "kstream.GlobalKTable": ("`GlobalKTable`", {}),
    "kstream.Grouped": ("`KStream.group_by`", _all("`key=`, `value=`, `name=`")),
    "kstream.JoinWindows": (
        "`JoinWindows`",
        {
            "ofTimeDifferenceAndGrace": "`JoinWindows.of`: `grace=`",
            "ofTimeDifferenceWithNoGrace": "`JoinWindows.of`",
            "before": "`JoinWindows.of`: `before=`",
            "after": "`JoinWindows.of`: `after=`",
            "gracePeriodMs": "`JoinWindows.grace_ms`",
            "size": "`JoinWindows.size_ms`",
            "windowsFor": "not here: a join has no windows to list",
        },
    ),
    "kstream.Joined": ("`KStream.join`", _all("`key=`, `value=`, `other_value=`, `name=`, `grace=`")),
    "kstream.KGroupedStream": ("`KGroupedStream`", {}),
    "kstream.KGroupedTable": ("`KGroupedTable`", {}),
    "kstream.KStream": ("`KStream`", {}),
    "kstream.KTable": ("`KTable`", {}),
    "kstream.Materialized": (
        "`Materialized`",
        {
            "as": "`store=`, or `supplier=`",
            "with": "`key=`, `value=`",
            "withCachingDisabled": "`caching=False`",
            "withCachingEnabled": "`caching=True`",
            "withKeySerde": "`key=`",
            "withLoggingDisabled": "`logging=False`",
            "withLoggingEnabled": "`logging_config=`",
            "withRetention": "`retention=`",
            "withStoreType": "`persistent=`",
            "withValueSerde": "`value=`",
        },
    ),
    "kstream.Materialized.StoreType": ("`Materialized.persistent`", _all("`persistent=`")),
    "kstream.Named": ("`name=` of every call", _all("`name=`")),
    "kstream.Printed": (
        "`KStream.print`",
        {
            "toFile": "`file=`",
            "toSysOut": "without `file=`",
            "withKeyValueMapper": "`line=`",
            "withLabel": "`label=`",
            "withName": "`name=`",
        },
    ),
    "kstream.Produced": ("`KStream.to`", _all("`key=`, `value=`, `partitioner=`, `name=`")),
    "kstream.Repartitioned": (
        "`KStream.repartition`",
        _all("`key=`, `value=`, `partitions=`, `partitioner=`, `name=`"),
    ),
    "kstream.SessionWindowedCogroupedKStream": (
        "`CogroupedKStream.windowed_by`",
        _all("`.aggregate()` of what it returns"),
    ),
    "kstream.SessionWindowedDeserializer": ("`serdes.session_windowed`", _all("`Serde.deserializer`")),
    "kstream.SessionWindowedKStream": (
        "`SessionWindowedKStream`",
        {"emitStrategy": "`KGroupedStream.windowed_by`: `emit=`"},
    ),
    "kstream.SessionWindowedSerializer": ("`serdes.session_windowed`", _all("`Serde.serializer`")),
    "kstream.SessionWindows": (
        "`SessionWindows`",
        {
            "ofInactivityGapAndGrace": "`SessionWindows.of`: `grace=`",
            "ofInactivityGapWithNoGrace": "`SessionWindows.of`",
            "gracePeriodMs": "`SessionWindows.grace_ms`",
            "inactivityGap": "`SessionWindows.gap_ms`",
        },
    ),
    "kstream.SlidingWindows": (
        "`SlidingWindows`",
        {
            "ofTimeDifferenceAndGrace": "`SlidingWindows.of`: `grace=`",
            "ofTimeDifferenceWithNoGrace": "`SlidingWindows.of`",
            "gracePeriodMs": "`SlidingWindows.grace_ms`",
            "timeDifferenceMs": "`SlidingWindows.difference_ms`",
        },
    ),
    "kstream.StreamJoined": (
        "`KStream.join`",
        {
            "withLoggingEnabled": "`logging_config=`",
            "withStoreName": "`store=`",
            "withLoggingDisabled": "not here",
            "withDslStoreSuppliers": "`dsl.store.suppliers.class` of the configuration",
            "withThisStoreSupplier": "`dsl.store.suppliers.class` of the configuration",
            "withOtherStoreSupplier": "`dsl.store.suppliers.class` of the configuration",
            "*": "`key=`, `value=`, `other_value=`, `name=`",
        },
    ),
    "kstream.Suppressed": ("`Suppressed`", {"withName": "`KTable.suppress`: `name=`"}),
    "kstream.Suppressed.BufferConfig": (
        "`Suppressed.until_time_limit`",
        {
            "emitEarlyWhenFull": "`emit_early_when_full=True`",
            "shutDownWhenFull": "`emit_early_when_full=False`",
            "maxBytes": "`max_bytes=`",
            "withMaxBytes": "`max_bytes=`",
            "maxRecords": "`max_records=`",
            "withMaxRecords": "`max_records=`",
            "unbounded": "without both limits",
            "withNoBound": "without both limits",
            "withLoggingDisabled": "not here",
            "withLoggingEnabled": "not here",
        },
    ),
    "kstream.Suppressed.EagerBufferConfig": ("`Suppressed.until_time_limit`", {}),
    "kstream.Suppressed.StrictBufferConfig": ("`Suppressed.until_window_closes`", {}),
    "kstream.TableJoined": (
        "`KTable.join`",
        {"as": "`name=`", "with": "not here", "withName": "`name=`", "*": "not here"},
    ),
    "kstream.TimeWindowedCogroupedKStream": (
        "`CogroupedKStream.windowed_by`",
        _all("`.aggregate()` of what it returns"),
    ),
    "kstream.TimeWindowedDeserializer": ("`serdes.time_windowed`", _all("`Serde.deserializer`")),
    "kstream.TimeWindowedKStream": ("`TimeWindowedKStream`", {"emitStrategy": "`KGroupedStream.windowed_by`: `emit=`"}),
    "kstream.TimeWindowedSerializer": ("`serdes.time_windowed`", _all("`Serde.serializer`")),
    "kstream.TimeWindows": (
        "`TimeWindows`",
        {
            "ofSizeAndGrace": "`TimeWindows.of`: `grace=`",
            "ofSizeWithNoGrace": "`TimeWindows.of`",
            "advanceBy": "`TimeWindows.of`: `advance=`",
            "gracePeriodMs": "`TimeWindows.grace_ms`",
            "size": "`TimeWindows.size_ms`",
            "windowsFor": "`TimeWindows.starts_of`",
        },
    ),
    "kstream.Transformer": (f"`Processor` ({_DEPRECATED})", _all("`Processor.process`")),
    "kstream.TransformerSupplier": (f"`Processor` ({_DEPRECATED})", _all("a class or a factory")),
    "kstream.UnlimitedWindows": (
        "`UnlimitedWindows`",
        {
            "startOn": "`UnlimitedWindows.of`: `start=`",
            "of": "`UnlimitedWindows.of`",
            "gracePeriodMs": "`UnlimitedWindows.grace_ms`",
            "size": "`UnlimitedWindows.size_ms`",
            "windowsFor": "`UnlimitedWindows.starts_of`",
        },
    ),
    "kstream.ValueTransformer": (f"`FixedKeyProcessor` ({_DEPRECATED})", _all("`FixedKeyProcessor.process`")),
    "kstream.ValueTransformerSupplier": (f"`FixedKeyProcessor` ({_DEPRECATED})", _all("a class or a factory")),
    "kstream.ValueTransformerWithKey": ("`ValueTransformer`", {}),
    "kstream.ValueTransformerWithKeySupplier": ("`KTable.transform_values`", _all("a class or a factory")),
    "kstream.Window": (
        "`Windowed`",
        {
            "endTime": "`Windowed.end`, in milliseconds",
            "startTime": "`Windowed.start`, in milliseconds",
            "overlap": "compare `Windowed.start` and `Windowed.end`",
        },
    ),
    "kstream.Windowed": ("`Windowed`", {"window": "`Windowed.start`, `Windowed.end`"}),
    "kstream.WindowedSerdes": (
        "`serdes.time_windowed`, `serdes.session_windowed`",
        {"sessionWindowedSerdeFrom": "`serdes.session_windowed`", "timeWindowedSerdeFrom": "`serdes.time_windowed`"},
    ),
    "kstream.WindowedSerdes.SessionWindowedSerde": ("`serdes.session_windowed`", {}),
    "kstream.WindowedSerdes.TimeWindowedSerde": ("`serdes.time_windowed`", _all("not here: internal to stores")),
    "kstream.Windows": (
        "`TimeWindows`, `UnlimitedWindows`",
        {
            "gracePeriodMs": "`TimeWindows.grace_ms`",
            "size": "`TimeWindows.size_ms`",
            "windowsFor": "`TimeWindows.starts_of`",
        },
    ),
    # processor
    "processor.BatchingStateRestoreCallback": (
        "`CustomStateStore.restore`, once for each record",
        _all("`CustomStateStore.restore`"),
    ),
    "processor.Cancellable": ("what `ProcessingContext.schedule` returns", _all("`cancel()`")),
    "processor.CommitCallback": ("`CustomStateStore.commit`", _all("`CustomStateStore.commit`")),
    "processor.ConnectedStoreProvider": ("`ConnectedStoreProvider`", {}),
    "processor.FailOnInvalidTimestamp": ("`fail_on_invalid_timestamp`", _all(_FUNCTION)),
    "processor.LogAndSkipOnInvalidTimestamp": ("`log_and_skip_invalid`", _all(_FUNCTION)),
    "processor.UsePartitionTimeOnInvalidTimestamp": ("`partition_time_if_invalid`", _all(_FUNCTION)),
    "processor.WallclockTimestampExtractor": ("`wall_clock_time`", _all(_FUNCTION)),
    "processor.MockProcessorContext": (_MOCK, _all("not here")),
    "processor.MockProcessorContext.CapturedForward": (_MOCK, _all("not here")),
    "processor.MockProcessorContext.CapturedPunctuator": (_MOCK, _all("not here")),
    "processor.ProcessorContext": (
        "`ProcessorContext` (the old one of Java, which `StateStoreContext` and record are parts of)",
        {
            "appConfigsWithPrefix": "`ProcessingContext.app_configs`",
            "headers": "`Record.headers`",
            "offset": "`RecordMetadata.offset`",
            "partition": "`RecordMetadata.partition`",
            "register": "`CustomStateStore.restore`",
            "timestamp": "`Record.timestamp`",
            "topic": "`RecordMetadata.topic`",
        },
    ),
    "processor.PunctuationType": ("`Punctuation`", {}),
    "processor.Punctuator": ("a function of the time in milliseconds", _all(_FUNCTION)),
    "processor.RecordContext": (
        "`RecordContext`, by `with_context`",
        {
            "sourceRawKey": "not here: handlers of errors get `RawRecord.key`",
            "sourceRawValue": "not here: handlers of errors get `RawRecord.value`",
        },
    ),
    "processor.StandbyUpdateListener": ("`StandbyUpdateListener`", {}),
    "processor.StandbyUpdateListener.SuspendReason": ("`SuspendReason`", {}),
    "processor.StateRestoreCallback": ("`CustomStateStore.restore`", _all("`CustomStateStore.restore`")),
    "processor.StateRestoreListener": ("`RestoreListener`", {}),
    "processor.StateStore": (
        "`StateStore`; custom stores: `CustomStateStore`",
        {
            "close": "`CustomStateStore.close`",
            "commit": "`CustomStateStore.commit`",
            "committedOffset": "`CustomStateStore.committed_offset`",
            "init": "`CustomStateStore.open`",
            "query": "`CustomStateStore.query`",
            "getPosition": "`QueryResult.position`",
        },
    ),
    "processor.StateStoreContext": (
        "`StateStoreContext`",
        {
            "appConfigs": "not here: give the store what it needs when it is made",
            "appConfigsWithPrefix": "not here: give the store what it needs when it is made",
            "keySerde": "not here: give the store its serdes when it is made",
            "valueSerde": "not here: give the store its serdes when it is made",
            "metrics": "not here: `ProcessingContext.metrics` of the processor",
            "recordMetadata": "`StateStoreContext.record`",
            "register": "`CustomStateStore.restore`",
        },
    ),
    "processor.StreamPartitioner": ("`Partitioner`", _all(_FUNCTION)),
    "processor.TaskId": (
        "`TaskId`",
        {"compareTo": "compares with `<`", "topologyName": "`TaskId.topology_name`, for groups of others"},
    ),
    "processor.TimestampExtractor": ("`TimestampExtractor`", _all(_FUNCTION)),
    "processor.To": ("`ProcessorContext.forward`", {"withTimestamp": "`Record.with_timestamp`", "*": "`child=`"}),
    "processor.TopicNameExtractor": ("`TopicChooser`", _all(_FUNCTION)),
    "processor.api.ContextualFixedKeyProcessor": (
        "`FixedKeyProcessor`",
        {"context": "`FixedKeyProcessor.context`", "init": "`FixedKeyProcessor.init`"},
    ),
    "processor.api.ContextualProcessor": (
        "`Processor`",
        {"context": "`Processor.context`", "init": "`Processor.init`"},
    ),
    "processor.api.FixedKeyProcessor": ("`FixedKeyProcessor`", {}),
    "processor.api.FixedKeyProcessorContext": ("`FixedKeyProcessorContext`", {}),
    "processor.api.FixedKeyProcessorSupplier": ("`FixedKeyProcessorSupplier`", _all("a class or a factory")),
    "processor.api.FixedKeyRecord": ("`FixedKeyRecord`", {}),
    "processor.api.InternalFixedKeyRecordFactory": ("`FixedKeyRecord`", _all("not here: internal to Java")),
    "processor.api.MockProcessorContext": (_MOCK, _all("not here")),
    "processor.api.MockProcessorContext.CapturedForward": (_MOCK, _all("not here")),
    "processor.api.MockProcessorContext.CapturedPunctuator": (_MOCK, _all("not here")),
    "processor.api.ProcessingContext": (
        "`ProcessingContext`",
        {"appConfigsWithPrefix": "`ProcessingContext.app_configs`"},
    ),
    "processor.api.Processor": ("`Processor`", {}),
    "processor.api.ProcessorContext": ("`ProcessorContext`", {}),
    "processor.api.ProcessorSupplier": ("`ProcessorSupplier`", _all("a class or a factory")),
    "processor.api.ProcessorWrapper": ("not here: wrap processors where the topology is built", _all("not here")),
    "processor.api.WrappedFixedKeyProcessorSupplier": ("not here: wrap processors where the topology is built", {}),
    "processor.api.WrappedProcessorSupplier": ("not here: wrap processors where the topology is built", {}),
    "processor.api.Record": ("`Record`", {}),
    "processor.api.RecordMetadata": ("`RecordMetadata`", {}),
    # processor.assignment
    "processor.assignment.ApplicationState": ("`assignment.ApplicationState`", {}),
    "processor.assignment.AssignmentConfigs": ("`assignment.AssignmentConfigs`", {}),
    "processor.assignment.KafkaStreamsAssignment": (
        "`assignment.KafkaStreamsAssignment`",
        {"of": "`assignment.KafkaStreamsAssignment`, called"},
    ),
    "processor.assignment.KafkaStreamsAssignment.AssignedTask": ("`assignment.AssignedTask`", {}),
    "processor.assignment.KafkaStreamsAssignment.AssignedTask.Type": ("`assignment.TaskType`", {}),
    "processor.assignment.KafkaStreamsState": ("`assignment.KafkaStreamsState`", {}),
    "processor.assignment.ProcessId": (
        "`assignment.ProcessId`",
        {"compareTo": "compares with `<`", "randomProcessId": "not here: the runtime makes them"},
    ),
    "processor.assignment.TaskAssignmentUtils": (
        "functions",
        {
            "defaultStandbyTaskAssignment": "`assignment.default_standby_task_assignment`",
            "identityAssignment": "`assignment.identity_assignment`",
            "optimizeRackAwareActiveTasks": "`assignment.optimize_rack_aware_active_tasks`",
            "optimizeRackAwareStandbyTasks": "`assignment.optimize_rack_aware_standby_tasks`",
            "validateTaskAssignment": "`assignment.validate_task_assignment`",
        },
    ),
    "processor.assignment.TaskAssignmentUtils.MoveStandbyTaskPredicate": (
        "not here: `assignment.optimize_rack_aware_standby_tasks` keeps standbys apart by client tags",
        _all("not here"),
    ),
    "processor.assignment.TaskAssignmentUtils.RackAwareOptimizationParams": (
        "`assignment.RackAwareOptimizationParams`",
        {
            "of": "`assignment.RackAwareOptimizationParams`, called",
            "forStatefulTasks": "`tasks=`",
            "forStatelessTasks": "`tasks=`",
            "forTasks": "`tasks=`",
            "withNonOverlapCostOverride": "`non_overlap_cost=`",
            "withTrafficCostOverride": "`traffic_cost=`",
        },
    ),
    "processor.assignment.TaskAssignor": ("`assignment.TaskAssignor`", {}),
    "processor.assignment.TaskAssignor.AssignmentError": ("`assignment.AssignmentError`", {}),
    "processor.assignment.TaskAssignor.TaskAssignment": ("`assignment.TaskAssignment`", {}),
    "processor.assignment.TaskInfo": ("`assignment.TaskInfo`", {}),
    "processor.assignment.TaskTopicPartition": ("`assignment.TaskTopicPartition`", {}),
    "processor.assignment.assignors.StickyTaskAssignor": ("`task.assignor.class = sticky`", _all("chosen by its name")),
    # query
    "query.FailureReason": ("`FailureReason`", {}),
    "query.KeyQuery": (
        "`KeyQuery`",
        {
            "getKey": "`KeyQuery.key`",
            "withKey": "`KeyQuery.key`",
            "skipCache": "not here: a query sees what is in the record cache",
            "isSkipCache": "not here: a query sees what is in the record cache",
        },
    ),
    "query.MultiVersionedKeyQuery": (
        "`MultiVersionedKeyQuery`",
        {
            "withKey": "`MultiVersionedKeyQuery.key`",
            "fromTime": "`MultiVersionedKeyQuery.first`",
            "toTime": "`MultiVersionedKeyQuery.last`",
            "resultOrder": "`MultiVersionedKeyQuery.reverse`",
            "withAscendingTimestamps": "`reverse=False`",
            "withDescendingTimestamps": "`reverse=True`",
        },
    ),
    "query.Position": ("a mapping: topic to partition to offset", _all("a plain mapping")),
    "query.PositionBound": ("`KafkaStreams.query`: `bound=`", _all("`bound=`, a plain mapping")),
    "query.Query": ("`Query`", {}),
    "query.QueryConfig": ("not here: no execution information is collected", _all("not here")),
    "query.QueryResult": (
        "`QueryResult`",
        {
            "getFailureMessage": "`QueryResult.message`",
            "getFailureReason": "`QueryResult.failure`",
            "getPosition": "`QueryResult.position`",
            "getResult": "`QueryResult.value`",
            "isSuccess": "`QueryResult.is_success`",
            "isFailure": "`QueryResult.is_success`",
            "addExecutionInfo": "not here: no execution information is collected",
            "getExecutionInfo": "not here: no execution information is collected",
            "setPosition": "`QueryResult`, called by a store's `CustomStateStore.query`",
            "*": "`QueryResult`, called by a store's `CustomStateStore.query`",
        },
    ),
    **{
        f"query.{name}": (
            f"`{name}`",
            {
                **dict.fromkeys((lower, "withLowerBound"), f"`{name}.first`"),
                **dict.fromkeys((upper, "withUpperBound"), f"`{name}.last`"),
                "withRange": f"`{name}.first`, `{name}.last`",
                "withNoBounds": f"`{name}`, called without arguments",
                "resultOrder": f"`{name}.reverse`",
                "withAscendingKeys": "`reverse=False`",
                "withDescendingKeys": "`reverse=True`",
            },
        )
        for name, lower, upper in (
            ("RangeQuery", "getLowerBound", "getUpperBound"),
            ("TimestampedRangeQuery", "lowerBound", "upperBound"),
        )
    },
    "query.ResultOrder": ("`RangeQuery.reverse`", {}),
    "query.StateQueryRequest": (
        "`KafkaStreams.query`",
        {
            **dict.fromkeys(("getPartitions", "withPartitions"), "`partitions=`"),
            **dict.fromkeys(("isAllPartitions", "withAllPartitions"), "without `partitions=`"),
            **dict.fromkeys(("getPositionBound", "withPositionBound"), "`bound=`"),
            **dict.fromkeys(("isRequireActive", "requireActive"), "`require_active=`"),
            **dict.fromkeys(("inStore", "getStoreName"), "the first argument"),
            "getQuery": "the second argument",
            "*": "not here: no execution information is collected",
        },
    ),
    "query.StateQueryRequest.InStore": ("`KafkaStreams.query`", _all("the second argument")),
    "query.StateQueryResult": (
        "`StateQueryResult`",
        {
            "getGlobalResult": "`StateQueryResult.global_result`",
            "getOnlyPartitionResult": "`StateQueryResult.only`",
            "getPartitionResults": "`StateQueryResult.partitions`",
            "getPosition": "`StateQueryResult.position`",
            "*": "not here: only `KafkaStreams.query` makes one",
        },
    ),
    "query.TimestampedKeyQuery": (
        "`TimestampedKeyQuery`",
        {
            "withKey": "`TimestampedKeyQuery.key`",
            "skipCache": "not here: a query sees what is in the record cache",
            "isSkipCache": "not here: a query sees what is in the record cache",
        },
    ),
    "query.VersionedKeyQuery": (
        "`VersionedKeyQuery`",
        {"withKey": "`VersionedKeyQuery.key`", "asOfTimestamp": "`VersionedKeyQuery.as_of`"},
    ),
    **{
        f"query.{name}": (
            f"`{name}`",
            {"getKey": f"`{name}.key`", "getTimeFrom": f"`{name}.first`", "getTimeTo": f"`{name}.last`", **made},
        )
        for name, made in (
            (
                "WindowKeyQuery",
                {"withKeyAndWindowStartRange": "`WindowKeyQuery.key`, `WindowKeyQuery.first`, `WindowKeyQuery.last`"},
            ),
            (
                "WindowRangeQuery",
                {
                    "withKey": "`WindowRangeQuery.key`",
                    "withWindowStartRange": "`WindowRangeQuery.first`, `WindowRangeQuery.last`",
                },
            ),
        )
    },
    # state
    "state.AggregationWithHeaders": (_WITH_HEADERS, _all("not here")),
    "state.BuiltInDslStoreSuppliers": ("`dsl.store.suppliers.class` of the configuration", {}),
    "state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers": (
        "`dsl.store.suppliers.class = in_memory`",
        _all("the operator chooses the store"),
    ),
    "state.BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers": (
        "`dsl.store.suppliers.class = rocksdb`",
        _all("the operator chooses the store"),
    ),
    **{
        f"state.{name}": ("not here: `Materialized` takes a `supplier=` for each table", _all("not here"))
        for name in ("DslKeyValueParams", "DslSessionParams", "DslStoreSuppliers", "DslWindowParams")
    },
    "state.HeadersBytesStore": (_WITH_HEADERS, _all("not here")),
    "state.HeadersBytesStoreSupplier": (_WITH_HEADERS, {}),
    "state.HostInfo": (
        "`HostInfo`",
        {
            "buildFromEndpoint": "`application.server` is read by the configuration",
            "unavailable": "`KeyQueryMetadata.is_available`",
        },
    ),
    "state.KeyValueBytesStoreSupplier": ("`KeyValueBytesStore`; `supplier=` of `key_value_store`", {}),
    "state.KeyValueIterator": (
        "an iterator of pairs",
        {"close": "`close()`; it also closes at its end", "peekNextKey": "not here"},
    ),
    "state.KeyValueStore": ("`KeyValueStore`", {}),
    "state.QueryableStoreType": ("`QueryableStoreType`", _all("chosen by `kind=`")),
    "state.QueryableStoreTypes": (
        "`QueryableStoreType`",
        {
            "keyValueStore": "`QueryableStoreType.KEY_VALUE`",
            "sessionStore": "`QueryableStoreType.SESSION`",
            "timestampedKeyValueStore": "`QueryableStoreType.TIMESTAMPED_KEY_VALUE`",
            "timestampedWindowStore": "`QueryableStoreType.TIMESTAMPED_WINDOW`",
            "windowStore": "`QueryableStoreType.WINDOW`",
            "*": _WITH_HEADERS,
        },
    ),
    "state.QueryableStoreTypes.KeyValueStoreType": (
        "`QueryableStoreType.KEY_VALUE`",
        _all("not here: internal to Java"),
    ),
    "state.QueryableStoreTypes.SessionStoreType": ("`QueryableStoreType.SESSION`", _all("not here: internal to Java")),
    "state.QueryableStoreTypes.TimestampedKeyValueStoreType": (
        "`QueryableStoreType.TIMESTAMPED_KEY_VALUE`",
        _all("not here: internal to Java"),
    ),
    "state.QueryableStoreTypes.TimestampedWindowStoreType": (
        "`QueryableStoreType.TIMESTAMPED_WINDOW`",
        _all("not here: internal to Java"),
    ),
    "state.QueryableStoreTypes.WindowStoreType": ("`QueryableStoreType.WINDOW`", _all("not here: internal to Java")),
    "state.ReadOnlyKeyValueStore": ("`ReadOnlyKeyValueStore`", {}),
    "state.ReadOnlySessionStore": (
        "`ReadOnlySessionStore`",
        {
            "backwardFetch": "`ReadOnlySessionStore.fetch`: `reverse=True`",
            "backwardFindSessions": "`ReadOnlySessionStore.find_sessions`: `reverse=True`",
            "fetch": "`ReadOnlySessionStore.fetch`; of a range of keys `ReadOnlySessionStore.fetch_keys`",
        },
    ),
    "state.ReadOnlyWindowStore": (
        "`ReadOnlyWindowStore`",
        {
            "backwardAll": "`ReadOnlyWindowStore.all`: `reverse=True`",
            "backwardFetch": "`ReadOnlyWindowStore.fetch_between`: `reverse=True`",
            "backwardFetchAll": "`ReadOnlyWindowStore.fetch_all`: `reverse=True`",
            "fetch": "`ReadOnlyWindowStore.fetch`, `ReadOnlyWindowStore.fetch_between`, "
            "`ReadOnlyWindowStore.fetch_keys`",
        },
    ),
    "state.RocksDBConfigSetter": ("not here: memory is bounded for the whole process", _all("not here")),
    "state.SessionBytesStoreSupplier": ("`session_store`", _all(_SUPPLIER)),
    "state.SessionStore": ("`SessionStore`", {"backwardFindSessions": "`SessionStore.find_sessions`: `reverse=True`"}),
    "state.SessionStoreWithHeaders": (_WITH_HEADERS, {}),
    "state.StateSerdes": ("`Serde`", _all("`Serde.serializer`, `Serde.deserializer`")),
    "state.StoreBuilder": (
        "`StoreBuilder`, what `key_value_store` and its kin return",
        {
            "build": "not here: the runtime opens stores",
            "logConfig": "`StoreBuilder.logging_config`",
            "loggingEnabled": "`logging=`",
            "withLoggingDisabled": "`logging=False`",
            "withLoggingEnabled": "`logging_config=`",
            "withCachingDisabled": "`caching=False`",
            "withCachingEnabled": "`caching=True`",
        },
    ),
    "state.StoreSupplier": ("`supplier=` of `key_value_store`, `custom_store`", _all(_SUPPLIER)),
    "state.Stores": (
        "functions",
        {
            "inMemoryKeyValueStore": "`key_value_store`: `persistent=False`",
            "inMemorySessionStore": "`session_store`: `persistent=False`",
            "inMemoryWindowStore": "`window_store`: `persistent=False`",
            "keyValueStoreBuilder": "`key_value_store`",
            "lruMap": "`lru_map`",
            "persistentKeyValueStore": "`key_value_store`",
            "persistentSessionStore": "`session_store`",
            "persistentTimestampedKeyValueStore": "`timestamped_key_value_store`",
            "persistentTimestampedWindowStore": "`timestamped_window_store`",
            "persistentVersionedKeyValueStore": "`versioned_key_value_store`",
            "persistentWindowStore": "`window_store`",
            "sessionStoreBuilder": "`session_store`",
            "timestampedKeyValueStoreBuilder": "`timestamped_key_value_store`",
            "timestampedWindowStoreBuilder": "`timestamped_window_store`",
            "versionedKeyValueStoreBuilder": "`versioned_key_value_store`",
            "windowStoreBuilder": "`window_store`",
            "*": _WITH_HEADERS,
        },
    ),
    "state.TimestampedBytesStore": ("not here: internal to Java", _all("not here")),
    "state.TimestampedKeyValueStore": ("`TimestampedKeyValueStore`", {}),
    "state.TimestampedKeyValueStoreWithHeaders": (_WITH_HEADERS, {}),
    "state.TimestampedWindowStore": ("`TimestampedWindowStore`", {}),
    "state.TimestampedWindowStoreWithHeaders": (_WITH_HEADERS, {}),
    "state.ValueAndTimestamp": (
        "`ValueAndTimestamp`",
        {
            "getValueOrNull": "`ValueAndTimestamp.value`",
            "make": "`ValueAndTimestamp`, called",
            "makeAllowNullable": "`ValueAndTimestamp`, called",
        },
    ),
    "state.ValueTimestampHeaders": (_WITH_HEADERS, _all("not here")),
    "state.VersionedBytesStore": ("not here: versioned stores over custom byte stores do not exist", _all("not here")),
    "state.VersionedBytesStoreSupplier": ("`versioned_key_value_store`", _all(_SUPPLIER)),
    "state.VersionedKeyValueStore": ("`VersionedKeyValueStore`", {}),
    "state.VersionedRecord": ("`VersionedRecord`", {}),
    "state.VersionedRecordIterator": ("an iterator of `VersionedRecord`", _all("closes at its end")),
    "state.WindowBytesStoreSupplier": ("`window_store`", _all(_SUPPLIER)),
    "state.WindowStore": (
        "`WindowStore`",
        {
            "backwardFetch": "`WindowStore.fetch_between`: `reverse=True`",
            "backwardFetchAll": "`WindowStore.fetch_all`: `reverse=True`",
            "fetch": "`WindowStore.fetch`, `WindowStore.fetch_between`, `WindowStore.fetch_keys`",
        },
    ),
    "state.WindowStoreIterator": ("an iterator of pairs of start and value", _all("closes at its end")),
    # test
    "test.TestRecord": (
        "`Record`",
        {
            "getHeaders": "`Record.headers`",
            "getKey": "`Record.key`",
            "getValue": "`Record.value`",
            "getRecordTime": "`Record.timestamp`, in milliseconds",
        },
    ),
}
"""Class, without ``org.apache.kafka.streams.`` -> what stands here, and what its methods are here."""
