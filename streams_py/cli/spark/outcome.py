"""How a command on Spark ends that went wrong: in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console

from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.errors import BrokerUnavailableError, StreamsError

__all__ = ["console", "explained"]

_NOT_DONE = (ValueError, ModuleNotFoundError, BrokerUnavailableError)


def console() -> Console:
    """Where results go."""
    return Console(highlight=False, soft_wrap=True)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Our own errors, a missing package and what Spark says end the command with what is wrong and what to do."""
    try:
        yield
    except (StreamsError, ModuleNotFoundError) as error:
        remedy = "; install kafka-streams-py[spark]" if isinstance(error, ModuleNotFoundError) else ""
        _end(f"{error}{remedy}", NOT_DONE if isinstance(error, _NOT_DONE) else FAILED, error)
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        from streams_py.spark.failures import sentence_of

        _end(sentence_of(error), FAILED, error)


def _end(sentence: str, status: int, error: Exception) -> None:
    Console(stderr=True, soft_wrap=True).print(f"error: {sentence}", style="red", highlight=False, markup=False)
    raise typer.Exit(status) from error
