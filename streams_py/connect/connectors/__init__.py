"""The connectors of this library. Each is a short example of :mod:`streams_py.connect.api`.

``connector.class`` is one of:

* ``streams_py.connect.connectors.file_source:FileSourceConnector``
* ``streams_py.connect.connectors.file_sink:FileSinkConnector``
* ``streams_py.connect.connectors.postgresql_sink:PostgresqlSinkConnector``
* ``streams_py.connect.connectors.postgresql_source:PostgresqlSourceConnector``
"""
