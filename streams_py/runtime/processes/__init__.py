"""One application in several processes of one machine: :mod:`.supervisor` starts them and starts them again,
:mod:`.child` is what such a process knows of it, :mod:`.health` answers an orchestrator's probes, and :mod:`.metrics`
collects the metrics of all processes for Prometheus."""
