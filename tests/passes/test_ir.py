"""Every `<pass-name>.mlir` beside this file: its pass, its CHECK lines, and equality to the bit where it is runnable.

The first line is `// PIPELINE: <pipeline>`. A module without quantized types is executed before and after.
"""

from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from tosaic.backends.reference import evaluate
from tosaic.compiler import verdicts  # noqa: F401  (passes know the targets then)
from tosaic.passes import PASSES, VerifyEach, parse_pipeline, run_passes
from tosaic.support.mlir import parse

FILES = sorted(Path(__file__).parent.glob("*.mlir"))


def _pipeline(source: str) -> str:
    first = source.splitlines()[0]
    assert first.startswith("// PIPELINE: ")
    return first.removeprefix("// PIPELINE: ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ir(path: Path, tmp_path: Path) -> None:
    source = path.read_text()
    module = parse(source)
    exact = "!quant." not in source
    passes = parse_pipeline(_pipeline(source))
    run_passes(module, passes, [VerifyEach(evaluate)] if exact else (), failures=tmp_path)
    options = Options(match_filename=str(path))
    matcher = Matcher(options, FInput(path.name, str(module)), Parser.from_opts(options))
    assert matcher.run() == 0


def test_every_pass_has_a_file() -> None:
    assert set(PASSES.known()) <= {path.stem for path in FILES}
