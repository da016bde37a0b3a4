"""Jobs: a thread for each connector and each task, converters, and the loops of sources and sinks."""
