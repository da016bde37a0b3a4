"""What a client measures, for others to collect: Prometheus and OpenTelemetry. Needs the extra ``metrics``.

Names come from Kafka Streams: the figure ``process-rate`` of the group ``stream-thread-metrics`` is
``kafka_streams_stream_thread_metrics_process_rate`` with the tags as labels, as the JMX exporter writes those of a Java
application. ``dashboard.json`` beside this file is a Grafana dashboard of them.
"""

from streams_py.metrics.dashboard import dashboard
from streams_py.metrics.open_telemetry import observe_metrics, trace_rebalances
from streams_py.metrics.prometheus import MetricsServer, StreamsCollector

__all__ = ["MetricsServer", "StreamsCollector", "dashboard", "observe_metrics", "trace_rebalances"]
