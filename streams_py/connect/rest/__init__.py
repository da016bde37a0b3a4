"""The REST interface of a worker, Kafka Connect's: starlette on uvicorn, both of the extra ``connect``.

:mod:`.app` answers requests with what a :class:`.herder.RestHerder` knows and does, and passes on what another worker
has to do; :mod:`.server` serves it; :mod:`.signing` and :mod:`.tasks` are what workers send each other.
"""
