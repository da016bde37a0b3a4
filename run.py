#!/usr/bin/env python3
"""Runs the project's commands: `python3 run.py demo`, `python3 run.py test`, ...

Creates the environment in .venv on first use (needs Python >= 3.11 and access to a package index), and updates it when
the lock file changes. Uses only the standard library.

  demo [FILE|FOLDER]   count words with two processes; one is killed and restarts
  backfill [LINES]     a history goes through Spark, then the live application takes over (Java 17+)
  backtest [FOLDER]    record a group's rebalances, then find out which assignor would have suited it (Java 17+)
  test [PYTEST ARGS]   the tests that a change needs, in a few minutes and in random order (--shuffle=SEED repeats
                       one); --all adds the tests on Kafka brokers and Spark (Java 17+ with Maven, or Docker)
  conformance PATH...  compare this library with recordings of Apache Kafka Streams, file by file
  coverage [ARGS]      all tests but the weekly ones, with branch coverage
  check                lint, format and types
  bench [ARGS]         run the benchmarks, compared with other libraries
  python [ARGS]        Python inside the environment
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
LOCK = ROOT / "requirements.lock"
SPARK_LOCK = ROOT / "requirements-spark.lock"
STAMP = VENV / ".streams-py-stamp"
SPARK_STAMP = VENV / ".streams-py-spark-stamp"


def fail(message: str) -> None:
    print(f"run.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def pip(*arguments: str) -> None:
    command = [str(BIN / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *arguments]
    if subprocess.run(command, check=False, cwd=ROOT).returncode:
        fail("installing failed (the lines above say why); with a package index in reach, run the same command again")


def pip_locked(lock: Path) -> None:
    """Install exactly the packages of a lock file, without resolving dependencies.

    If a package requires another one with an extra, pip's resolver would choose the newest version of that package
    instead of the locked version, and reject it.
    """
    pip("--require-hashes", "--no-deps", "--requirement", str(lock))


def ensure_environment() -> None:
    """Create .venv from the lock file, unless it is up to date."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    content = LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes() + version.encode()
    stamp = hashlib.sha256(content).hexdigest()
    if STAMP.exists() and STAMP.read_text() == stamp:
        return
    print("run.py: making the environment in .venv (once, about a minute) ...", file=sys.stderr)
    if Path(sys.prefix).resolve() != VENV.resolve():  # the environment that runs this program is updated in place
        if STAMP.exists() or (VENV.exists() and not (BIN / "python").exists()):
            shutil.rmtree(VENV)
        if subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False).returncode:
            fail("python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv")
    pip_locked(LOCK)
    pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.write_text(stamp)


def ensure_spark() -> None:
    """Add PySpark, which only few commands need and which is larger than all other packages together."""
    stamp = hashlib.sha256(SPARK_LOCK.read_bytes()).hexdigest()
    if SPARK_STAMP.exists() and SPARK_STAMP.read_text() == stamp:
        return
    print("run.py: adding PySpark to the environment (once, about a minute) ...", file=sys.stderr)
    pip_locked(SPARK_LOCK)
    SPARK_STAMP.write_text(stamp)


def run(*command: str) -> int:
    """Run a command of the environment in the foreground and return its exit status. Ctrl-C goes to the command."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}", "VIRTUAL_ENV": str(VENV)}
    process = subprocess.Popen([str(BIN / command[0]), *command[1:]], env=environment, cwd=ROOT)
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            return process.wait()


def check() -> int:
    steps = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",))
    return max(run(*step) for step in steps)


def main() -> int:
    if sys.version_info < (3, 11):
        fail(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    name, arguments = (sys.argv[1] if len(sys.argv) > 1 else "help"), sys.argv[2:]
    if name in ("help", "-h", "--help"):
        print(__doc__)
        return 0
    commands = {"conformance", "demo", "backfill", "backtest", "test", "coverage", "check", "bench", "python"}
    if name not in commands:
        fail(f"unknown command {name!r}; one of {', '.join(sorted(commands))}")
    # Paths are relative to the user's directory: make them absolute before changing to the project's directory.
    if name == "backtest" or (name == "demo" and arguments and Path(arguments[0]).exists()):
        arguments = [str(Path(text).resolve()) for text in arguments]
    if name == "conformance":
        arguments = [text if text.startswith("-") else str(Path(text).resolve()) for text in arguments]
    ensure_environment()
    if name in ("backfill", "backtest", "test", "coverage", "check", "bench"):
        ensure_spark()
    match name:
        case "demo":
            return run("python", "-m", "examples.word_count.demo", *arguments)
        case "backfill":
            return run("python", "-m", "examples.backfill", *arguments)
        case "backtest":
            return run("python", "-m", "examples.backtest", *arguments)
        case "test":
            return run("python", "-m", "tests.run_suite", *arguments)
        case "conformance":
            return run("python", "-m", "tests.conformance", *arguments)
        case "coverage":
            return run("python", "-m", "pytest", "--cov", "--cov-report=term", *arguments)
        case "check":
            return check()
        case "bench":
            return run("python", "-m", "benchmarks", *arguments)
        case _:
            return run("python", *arguments)


if __name__ == "__main__":
    sys.exit(main())
