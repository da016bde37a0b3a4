"""A page that shows what a Kafka Streams group does, Java or Python, while it happens.

One thread reads the group (:mod:`.watcher`), however many pages are open; :mod:`.app` hands what it saw to browsers by
server-sent events. It joins no group and writes nothing.
"""
