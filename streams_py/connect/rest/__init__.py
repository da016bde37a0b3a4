"""A worker's REST interface, compatible with Kafka Connect's.

It uses starlette on uvicorn, both from the extra ``connect``.
:mod:`.app` handles requests with a :class:`.herder.RestHerder`, and forwards those that another worker must handle.
:mod:`.server` serves the application. :mod:`.signing` and :mod:`.tasks` are for requests between workers.
"""
