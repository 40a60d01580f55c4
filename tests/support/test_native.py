"""Modules that mypyc compiles: the same results, of today's sources alone."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time

import pytest
from house import ROOT

from tosaic.support import build_native, native
from tosaic.support.cache import place
from tosaic.support.errors import Error

KERNELS = """
from benchmarks.step_scan import printed, shipped_schedules
from tosaic.backends.cortex_m.program.schedule import replayed

for shipped in shipped_schedules():
    print(shipped.name, printed(shipped, replayed(shipped.program, shipped.steps)))
"""
"""Prints the C and the constants of a kernel of each sketch."""


def in_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def compiled():
    return build_native.compile_modules()


def test_every_module_is_compiled(compiled):
    names = {file.name.removesuffix(native.SUFFIX) for file in compiled.iterdir()}
    assert {name for name in names if not name.endswith("__mypyc")} == set(native.MODULES)


@pytest.mark.parametrize(("switch", "suffix"), [("1", native.SUFFIX), ("0", ".py")])
def test_a_process_imports_them_unless_told_not_to(compiled, switch, suffix):
    code = (
        "import importlib, tosaic.support.native as n; print(*(importlib.import_module(m).__file__ for m in n.MODULES))"
    )
    files = in_python(code, TOSAIC_NATIVE=switch).split()
    assert len(files) == len(native.MODULES) and all(file.endswith(suffix) for file in files)


def test_kernels_are_the_same(compiled):
    by_python = in_python(KERNELS, TOSAIC_NATIVE="0", PYTHONPATH=str(ROOT))
    assert by_python == in_python(KERNELS, PYTHONPATH=str(ROOT)) and len(by_python.splitlines()) > 50


@pytest.mark.parametrize("changed", ["backends/simulators/beats.py", "backends/cortex_m/program/tree.py"])
def test_a_change_of_a_source_makes_them_old(compiled, tmp_path, changed):
    copy = shutil.copytree(native.PACKAGE, tmp_path / "tosaic", ignore=build_native._all_but_sources)
    assert place(*native.cache_key(copy)) == compiled
    with (copy / changed).open("a") as file:
        file.write("\nCHANGED = True\n")
    assert place(*native.cache_key(copy)) != compiled


def test_all_that_they_import_makes_the_digest():
    sources = {name for name, _ in native._sources(native.PACKAGE)}
    assert {"tosaic.backends.cortex_m.program.tree", "tosaic.backends.target", "tosaic.support.errors"} <= sources
    assert set(native.MODULES) <= sources and all(map(importlib.util.find_spec, sources))


def test_what_mypyc_lacks_is_said(tmp_path, monkeypatch):
    (tmp_path / "python").write_text("#!/bin/sh\necho no module named mypyc >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(Error, match=r"they stay Python .*\n  because: no module named mypyc\n  try: pip install"):
        build_native._build(tmp_path / "folder")


def test_what_other_sources_made_is_deleted_a_month_after_its_last_use(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = shutil.copytree(compiled, tmp_path / "tosaic" / compiled.name)
    young, old = (mine.with_name(f"native-{name}") for name in ("young", "old"))
    for folder, days in ((mine, 40), (young, 20), (old, 40)):
        folder.mkdir(exist_ok=True)
        last = time.time() - days * 24 * 3600
        os.utime(folder, (last, last))
    in_python("import tosaic; from tosaic.support.build_native import compile_modules; compile_modules()")
    assert {folder.name for folder in mine.parent.iterdir()} == {mine.name, young.name}
