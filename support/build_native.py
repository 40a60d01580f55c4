"""Compiles modules of tosaic by mypyc: `python -m tosaic.support.build_native`, a minute the first time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tosaic.support.cache import cached, delete_unused
from tosaic.support.errors import Error
from tosaic.support.native import MODULES, PACKAGE, SUFFIX, cache_key, file_of

_MYPY = """
[mypy]
ignore_missing_imports = True
follow_imports = skip
[mypy-tosaic.backends.*,tosaic.support.*]
follow_imports = silent
"""
"""What mypyc takes types from; those of other packages would take minutes to read."""


def compile_modules() -> Path:
    """The folder with the compiled modules; compiles them where that was not done yet.

    Raises:
        Error: mypy, a C compiler or Python's headers are missing.
    """
    folder = cached(*cache_key(), _build)
    delete_unused("native")
    return folder


def _build(folder: Path) -> None:
    print("compiling the modules that make kernels (a minute the first time)")
    folder.mkdir()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        shutil.copytree(PACKAGE, work / "tosaic", ignore=_all_but_sources)
        (work / "mypy.ini").write_text(_MYPY, encoding="utf-8")
        files = [str(file_of(module, work / "tosaic").relative_to(work)) for module in MODULES]
        command = [sys.executable, "-m", "mypyc", *files]
        environment = {**os.environ, "MYPYC_OPT_LEVEL": "1", "MYPYC_DEBUG_LEVEL": "0"}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise Error(
                "mypyc cannot compile the modules that make kernels; they stay Python and take twice the time",
                hint="pip install tosaic[native], apt-get install gcc libpython3-dev",
                why="\n".join((done.stdout + done.stderr).strip().splitlines()[-3:]),
            )
        for file in (*work.glob(f"*{SUFFIX}"), *(work / "tosaic").rglob(f"*{SUFFIX}")):
            module = ".".join(file.relative_to(work).parts).removesuffix(SUFFIX)
            shutil.move(file, folder / f"{module}{SUFFIX}")


def _all_but_sources(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not Path(folder, name).is_dir()]


if __name__ == "__main__":
    try:
        compile_modules()
    except Error as error:
        sys.exit(f"warning: {error}")
