"""The word count in two processes below a supervisor. The order is the first argument.

Its processes wait while the file ``hold`` of the order exists, so that a test sees what happens before they are back.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

from streams_py import KafkaStreams
from tests.support.broker.worker import count_words


def main() -> None:
    order = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
    while os.path.exists(order["hold"]):
        time.sleep(0.05)
    KafkaStreams(count_words(order), order["config"]).run(processes=2)


if __name__ == "__main__":
    main()
