"""Export a client's metrics to Prometheus and OpenTelemetry. Requires the extra ``metrics``.

The names are Kafka Streams': the metric ``process-rate`` of the group ``stream-thread-metrics`` is exported as
``kafka_streams_stream_thread_metrics_process_rate``, with its tags as labels, as by the JMX exporter for a Java
application. ``dashboard.json`` in this folder is a Grafana dashboard for them.
"""

from streams_py.metrics.dashboard import dashboard
from streams_py.metrics.open_telemetry import observe_metrics, trace_rebalances
from streams_py.metrics.prometheus import MetricsServer, StreamsCollector

__all__ = ["MetricsServer", "StreamsCollector", "dashboard", "observe_metrics", "trace_rebalances"]
