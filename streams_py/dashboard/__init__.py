"""A page that shows a Kafka Streams group live, Java or Python.

One thread reads the group (:mod:`.watcher`), even with many open pages. :mod:`.app` sends its results to browsers as
server-sent events. The dashboard joins no group and writes nothing.
"""
