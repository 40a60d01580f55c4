"""The command line in process, in a working directory that must stay empty and with records of its own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tosaic.cli import main
from tosaic.compiler.tuning import Tuner
from tosaic.terminal.console import FAULT

NETS = Path(__file__).parent / "models" / "nets.py"


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """The working directory, and where records lie: the same of all modules, which measuring processes outlast."""
    return tmp_path_factory.mktemp("working-directory"), tmp_path_factory.mktemp("data")


@pytest.fixture(autouse=True, scope="module")
def nothing_stray(folders):
    """Every command of a module runs here and leaves nothing behind."""
    here, data = folders
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("XDG_DATA_HOME", str(data))
        yield here
    assert list(here.iterdir()) == []
    for left in data.iterdir():
        shutil.rmtree(left)


@pytest.fixture(autouse=True, scope="module")
def any_guess(request):
    """Kernels begin with any legal schedule, as most tests here ask whether programs are right, not whether they are
    fast; in modules that say `COMPARED = True` with the best of several, as users have them."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "COMPARED", False):
            site = Tuner.site
            patch.setattr(Tuner, "site", lambda *arguments: replace(site(*arguments), compared=False))
        yield


@pytest.fixture(scope="session")
def tosaic() -> Callable[..., Result]:
    """Run a command; whatever is no deliberate exit is raised."""

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)

    return run


@pytest.fixture(scope="session")
def succeed(tosaic) -> Callable[..., dict]:
    """Run a command with --json that must succeed; the one object on its stdout."""

    def run(*arguments: object) -> dict:
        result = tosaic(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)

    return run


@pytest.fixture(scope="session")
def refused(tosaic) -> Callable[..., str]:
    """Run a command that must end with exit code 1 and a message: the message."""

    def run(*arguments: object) -> str:
        result = tosaic(*arguments)
        assert result.exit_code == 1, result.output
        assert re.search("^error: ", result.stderr, re.MULTILINE), result.stderr  # behind what progress has told
        assert "Traceback" not in result.output and FAULT not in result.output
        assert result.stdout == ""
        return result.stderr

    return run


@pytest.fixture(scope="session")
def net(succeed, tmp_path_factory) -> Path:
    """A build folder of a small net, for a core and an NPU."""
    folder = tmp_path_factory.mktemp("net") / "build"
    succeed("compile", f"{NETS}:net", "--target", "corstone-300", "-o", folder)
    return folder
