"""Pages of `docs/` that a test executes: what their Python prints is what stands behind it."""

from __future__ import annotations

import difflib
import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tosaic.cli import main

_BLOCK = re.compile(r"```(\w+)(?: (\S+))?\n(.*?)```", re.S)


def named_blocks(text: str, language: str) -> dict[str, str]:
    """The blocks of a language that are files, by name."""
    return {found[2]: found[3] for found in _BLOCK.finditer(text) if found[1] == language and found[2]}


def executed(text: str, names: dict[str, Any]) -> str:
    """The text of a page with what its blocks print now, in the working directory.

    A block of `python` is executed with `names`, which it adds to; `text` is what the block before it printed; each
    line of `sh` is a command of tosaic's that must succeed. Blocks with names are files: those of Python the caller
    writes, others are written here.
    """
    printed = ""

    def one(found: re.Match[str]) -> str:
        nonlocal printed
        language, name, body = found.groups()
        if name and language != "python":
            Path(name).write_text(body)
        elif language == "python" and not name:
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(body, "<page>", "exec"), names)
            printed = out.getvalue()
        elif language == "sh":
            for line in body.replace("\\\n", " ").splitlines():
                result = CliRunner().invoke(main, shlex.split(line, comments=True)[1:], catch_exceptions=False)
                assert result.exit_code == 0, result.output
        elif language == "text":
            return f"```text\n{printed.rstrip()}\n```"
        return found[0]

    return _BLOCK.sub(one, text)


def assert_as_printed(page: Path, text: str, now: str, folder: Path) -> None:
    """A part of a page is what its blocks print; the page as it should be is left in `folder` where it is not."""
    if now != text:
        better = folder / page.name
        better.write_text(page.read_text().replace(text, now))
        changed = "\n".join(difflib.unified_diff(text.splitlines(), now.splitlines(), n=0, lineterm=""))
        pytest.fail(f"{page.name} prints something else now, {better} is as it should be:\n{changed}", pytrace=False)
