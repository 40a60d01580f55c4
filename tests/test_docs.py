"""What documents tell a reader to type: every command is one, every link leads somewhere, every block runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from pages import executed

from tosaic.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\S+).*?\n(.*?)^```", re.M | re.S)
_TO_RUN = re.compile(r"^```(sh|python|\w+ \S+\n).*?^```\n(\n```text\n.*?^```\n)?", re.M | re.S)
"""A block that is executed, with what it prints, or a file that one needs."""
_ELSEWHERE = {"kernels.md", "npus.md", "schedules.md", "passes.md"}
"""Pages whose blocks have a test of their own."""
_RUN = [page for page in PAGES if page.name not in _ELSEWHERE and re.search(r"^```(sh|python)", page.read_text(), re.M)]
_NEEDED = ("examples", "benchmarks", "tests", "docs")
_OPTIONS_OF_OTHERS = {"--baud", "--upgrade", "--index-url", "--graphs", "--seed", "--flips", "--count", "--sample",
                      "--as-a-user", "--first", "--step", "--verbose-performance",
                      "--accelerator-config", "--output-dir", "--help"}  # fmt: skip


def _commands(page: Path) -> list[str]:
    """The lines of a page's blocks that are commands of tosaic's."""
    blocks = [body for language, body in _BLOCK.findall(page.read_text()) if language in ("sh", "console")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("tosaic ") and "SCHEDULER" not in line]


COMMANDS = [(page, line) for page in PAGES for line in _commands(page)]


def _parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Read the words of a command as `tosaic` does, without running it."""
    context = command.make_context(command.name, words, parent=parent)
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if isinstance(command, click.Group) and rest:
        _, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        _parse(inner, rest, context)


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page.stem}: {line[:60]}" for page, line in COMMANDS])
def test_every_command_is_one(page, line):
    _parse(main, shlex.split(line, comments=True)[1:])


def test_a_command_that_is_none_is_seen():
    with pytest.raises(click.UsageError, match="No such option"):
        _parse(main, ["compile", "zoo:dscnn", "--faster"])


def _options(command: click.Command) -> set[str]:
    own = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(_options, inner))


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "coming-from"], ids=lambda page: page.stem)
def test_every_option_in_the_text_is_one(page):
    text = _BLOCK.sub("", page.read_text())
    named = {name for code in re.findall(r"`([^`\n]+)`", text) if not re.match(r"(python|pip|make|cmake|qemu)", code)
             for name in re.findall(r"(?<!\S)--[a-z][\w-]*", code)}  # fmt: skip
    assert named - _options(main) - _OPTIONS_OF_OTHERS == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", _BLOCK.sub("", page.read_text()))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_index():
    listed = re.findall(r"^[\w/-]+$", (ROOT / "docs" / "index.md").read_text(), re.M)
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index"} == set(listed)


@pytest.mark.pages
@pytest.mark.parametrize("page", _RUN, ids=lambda page: page.stem)
def test_every_block_runs(page, tmp_path, monkeypatch):
    for name in _NEEDED:
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    names = dict[str, Any]()
    text = "".join(found[0] for found in _TO_RUN.finditer(page.read_text()))
    assert executed(text, names) == text
