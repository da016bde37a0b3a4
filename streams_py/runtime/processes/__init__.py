"""One application in several processes of one machine.

:mod:`.supervisor` starts and restarts them, :mod:`.child` is the side of such a process, :mod:`.health` answers an
orchestrator's probes, and :mod:`.metrics` collects the metrics of all processes for Prometheus.
"""
