"""Do what a page says, from top to bottom, in the current folder: ``python -m tests.docs.run_page PAGE``.

Its Python blocks are one program, as a reader would type it. An error gives a traceback with the page's line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from tests.docs.blocks import Block, Comment, parts_of

_PATIENCE_S = 120


class Reader:
    """A reader who types what the page says."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.names: dict[str, Any] = {"__name__": "page"}
        self.terminals: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self.folder_of: dict[str, Path] = {}
        self.home = Path.cwd()
        self.printed = ""  # by the last commands
        self.may_fail = self.is_output = False

    def follow(self) -> None:
        try:
            for part in parts_of(self.page):
                if isinstance(part, Comment):
                    self._heed(part)
                elif not part.not_run:
                    self._do(part)
        finally:
            for number in list(self.terminals):
                self._end(number, signal.SIGKILL)

    def _do(self, block: Block) -> None:
        where = f"{self.page}:{block.line}"
        if self.is_output:
            self.is_output = False
            wanted = ".*".join(re.escape(" ".join(piece.split())) for piece in block.code.split("..."))
            assert re.search(wanted, " ".join(self.printed.split())), f"{where}: printed was\n{self.printed}"
        elif block.language == "sh":
            if block.title:
                self._start(block.title.removeprefix("Terminal "), block.code)
            else:
                self._command(where, block.code)
        elif block.title:
            path = Path(block.title)
            assert not path.is_absolute(), where
            assert ".." not in path.parts, where
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
            if block.language not in ("python", "dockerfile"):
                _parse(block.language, block.code, where)
        elif block.language == "python":
            self._python(block.line, block.code)
        else:
            _parse(block.language, block.code, where)

    def _heed(self, comment: Comment) -> None:
        text = comment.text
        if text.startswith("test"):
            self._python(comment.line + 1, text.removeprefix("test").lstrip(" \n"))
        elif text == "fails":
            self.may_fail = True
        elif text == "output":
            self.is_output = True
        elif match := re.fullmatch(r"terminal (\d+) (shows .*|ctrl-c|kill)", text):
            number, what = match[1], match[2]
            if what.startswith("shows "):
                self._wait_for(number, what.removeprefix("shows "))
            else:
                self._end(number, signal.SIGINT if what == "ctrl-c" else signal.SIGKILL)

    def _python(self, line: int, code: str) -> None:
        exec(compile("\n" * (line - 1) + code, str(self.page), "exec", dont_inherit=True), self.names)

    def _command(self, where: str, code: str) -> None:
        left_in = self.home / "left-in"
        done = subprocess.run(
            ["bash", "-eu", "-c", f"{code}\npwd > {left_in}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
        self.printed = done.stdout.decode()
        assert (done.returncode != 0) == self.may_fail, f"{where}: ended with {done.returncode}\n{self.printed}"
        self.may_fail = False
        if left_in.exists():
            os.chdir(left_in.read_text().strip())  # the reader stays in the folder that the commands went to

    def _start(self, number: str, code: str) -> None:
        if number in self.terminals:  # the reader stopped the process that ran there, or it has stopped
            self._end(number, signal.SIGTERM)
        path = self.home / f"terminal-{number}.log"
        folder = self.folder_of.get(number, self.home)
        if went := re.match(r"cd (\S+)\n", code):
            self.folder_of[number] = folder / went[1]
        with path.open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-eu", "-c", code],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self.terminals[number] = process, path

    def _wait_for(self, number: str, text: str) -> None:
        process, path = self.terminals[number]
        deadline = time.monotonic() + _PATIENCE_S
        while text not in (shown := path.read_text(errors="replace")):
            assert process.poll() is None, f"terminal {number} ended with {process.returncode}:\n{shown}"
            assert time.monotonic() < deadline, f"terminal {number} did not show {text!r}:\n{shown}"
            time.sleep(0.05)

    def _end(self, number: str, how: signal.Signals) -> None:
        process, path = self.terminals.pop(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(_PATIENCE_S)
        if how is signal.SIGINT:
            shown = path.read_text(errors="replace")
            assert "Traceback" not in shown, f"after Ctrl-C terminal {number} showed:\n{shown}"


def _parse(language: str, code: str, where: str) -> None:
    match language:
        case "toml":
            tomllib.loads(code)
        case "json":
            json.loads(code)
        case "yaml":
            import yaml

            assert list(yaml.safe_load_all(code)), where
        case "properties":
            from streams_py.config.files import read_config_file

            Path("page.properties").write_text(code, encoding="utf-8")
            assert read_config_file(Path("page.properties")), where
        case "" | "text":
            pass
        case _:
            raise AssertionError(f"{where}: nothing here runs {language}; say why with <!-- not run: reason -->")


if __name__ == "__main__":
    sys.path.insert(0, "")  # modules of the folder that the reader is in
    Reader(Path(sys.argv[1])).follow()
