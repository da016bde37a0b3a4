"""A group of workers that run connectors written in Python, with assignments that an operator may fix (KIP-987).

The protocol is Kafka Connect's (KIP-415, KIP-507), on a broker's classic group coordinator. :mod:`.assignment` decides
which worker runs which job; pure, no clock, no threads, no clients. :mod:`.api` is what connectors are written with;
:class:`.worker.worker.Worker` runs them.
"""

import logging

from streams_py.system.printable import PrintableArguments

# Names of connectors, and errors that quote them, come from whoever may write to the config topic.
logging.getLogger(__name__).addFilter(PrintableArguments())
