"""A group of workers that run connectors written in Python.

Operators can fix assignments (KIP-987).

The protocol is Kafka Connect's (KIP-415, KIP-507), on a broker's classic group coordinator. :mod:`.assignment` decides
which worker runs each job. It is pure: no clock, threads or clients. Connectors are written against :mod:`.api`.
:class:`.worker.worker.Worker` runs them.
"""

import logging

from streams_py.system.printable import PrintableArguments

# Names of connectors, and errors that quote them, come from users who may write to the config topic.
logging.getLogger(__name__).addFilter(PrintableArguments())
