"""``python -m streams_py.testing.broker start|stop|kill``: real Kafka on this machine, without Docker."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streams_py.testing.broker.interface import NoBrokerError
from streams_py.testing.broker.jvm import JvmCluster, consecutive_ports

_EXAMPLES = """\
examples:
  start --port 29092 --dir build/kafka              one broker; prints its address when it is ready
  start --port 29092 --dir build/kafka --brokers 3  three brokers, on ports 29092 to 29094
  kill  --dir build/kafka --node 2                  SIGKILL; the same start command brings it back
  stop  --dir build/kafka --delete                  clean shutdown, then remove the data
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Return the exit status: 0, 1 (message on stderr) or 130 (Ctrl-C)."""
    options = _parser().parse_args(arguments)
    try:
        cluster = JvmCluster(options.dir, heap=getattr(options, "heap", "512m"))
        if options.command == "start":
            cluster.start(consecutive_ports(options.brokers, options.port))
            print(cluster.bootstrap, flush=True)
        elif not cluster.nodes:
            raise NoBrokerError(f"{options.dir} has no broker")
        elif options.node is not None:
            cluster.end_node(options.node, hard=options.command == "kill")
        else:
            cluster.end(hard=options.command == "kill", delete=getattr(options, "delete", False))
    except NoBrokerError as error:
        print(f"broker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m streams_py.testing.broker",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("start", "stop", "kill"):
        command = commands.add_parser(name)
        command.add_argument("--dir", type=Path, required=True, help="folder for data, logs and process ids")
        if name == "start":
            command.add_argument("--port", type=int, required=True, help="port of the first broker; the others follow")
            command.add_argument("--brokers", type=int, choices=(1, 3), default=1)
            command.add_argument("--heap", default="512m", help="heap size per broker (default %(default)s)")
        else:
            command.add_argument("--node", type=int, help="only this node (1, 2 or 3)")
        if name == "stop":
            command.add_argument("--delete", action="store_true", help="remove the data afterwards")
    return parser


if __name__ == "__main__":
    sys.exit(main())
