"""``streams-py diff`` whose JVM never answers when both runs are done, to be killed there.

    python -m tests.support.spark.stopped_diff MARK diff ARGUMENTS...

It makes the file ``MARK`` when it is there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streams_py.cli.commands import app
from streams_py.spark.history import compare

_FOR_EVER_MS = 3_600_000


def main(mark: Path, arguments: list[str]) -> None:
    def asked(rows: Any, sample: int) -> None:
        mark.touch()
        rows.sparkSession.sparkContext._jvm.java.lang.Thread.sleep(_FOR_EVER_MS)  # PySpark has no public way to its JVM

    with patch.object(compare, "_difference", asked):
        app(arguments)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
