"""The command line in process, in a working directory that must stay empty and with records of its own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch.export import ExportedProgram

from tosaic.cli import main
from tosaic.compiler import middle
from tosaic.compiler.middle import capture_model, quantized
from tosaic.compiler.options import CompileOptions
from tosaic.compiler.tuning import Tuner
from tosaic.frontend import Capture
from tosaic.support.quantization import CoarserWeights
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


@pytest.fixture(autouse=True, scope="session")
def any_guess():
    """Kernels begin with any legal schedule, not with the best of several as users have them: most tests here ask
    whether programs are right, not whether they are fast."""
    with pytest.MonkeyPatch.context() as patch:
        site = Tuner.site
        patch.setattr(Tuner, "site", lambda *arguments: replace(site(*arguments), compared=False))
        yield


@dataclass
class Known:
    """What capture and quantization made of the repository's own models, by all that they depend on."""

    captures: dict[tuple, Capture] = field(default_factory=dict)
    programs: dict[tuple, tuple[ExportedProgram, CoarserWeights | None]] = field(default_factory=dict)

    def capture(self, options: CompileOptions) -> Capture:
        of_the_repository = str(options.model).startswith(("zoo:", str(NETS.parents[3])))
        if not of_the_repository or options.calibration is not None or options.inputs is not None:
            return capture_model(options)
        key = (options.model, options.input_layout, options.output_layout, str(options.shapes))
        if key not in self.captures:
            self.captures[key] = capture_model(options)
        return self.captures[key]

    def quantized(self, options: CompileOptions, capture: Capture) -> tuple[ExportedProgram, CoarserWeights | None]:
        if not any(capture is known for known in self.captures.values()):
            return quantized(options, capture)
        key = (id(capture), options.quantization, options.target.accelerator)
        if key not in self.programs:
            self.programs[key] = quantized(options, capture)
        return self.programs[key]


@pytest.fixture(scope="session")
def known() -> Known:
    return Known()


@pytest.fixture(autouse=True, scope="module")
def captured_once(request, known):
    """A model that several tests compile is captured and quantized once, as both have tests of their own; each time
    in modules that say `AFRESH = True`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "AFRESH", False):
            patch.setattr(middle, "capture_model", known.capture)
            patch.setattr(middle, "quantized", known.quantized)
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
