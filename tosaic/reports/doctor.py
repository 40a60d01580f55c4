"""What of this machine tosaic stands on, and what it lacks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tosaic.reports.versions import MISSING, versions
from tosaic.support.native import BUILD, MODULES, is_compiled
from tosaic.support.processes import TOOLS, program, said_version, variable

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch's builds without CUDA are."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        state: `warning` where all works, but not as it should.
        found: its version and path, or what is wrong.
        hint: what to do about it.
        use: what it is for.
    """

    name: str
    state: Literal["ok", "warning", "missing"]
    found: str
    hint: str = ""
    use: str = ""


def examine() -> list[Finding]:
    """Each package and program that compilations need."""
    return [*_packages(), *map(_tool, TOOLS), _sandbox(), _native()]


def _packages() -> Iterator[Finding]:
    for name, version in versions().items():
        if name in TOOLS:
            continue
        if version == MISSING:
            yield Finding(name, "missing", version, f"pip install {name}, or tosaic anew")
        elif name == "torch":
            yield _torch(version)
        else:
            yield Finding(name, "ok", version)


def _torch(version: str) -> Finding:
    import torch

    if torch.version.cuda is None:
        return Finding("torch", "ok", version)
    number = version.partition("+")[0]
    hint = f"pip install --force-reinstall torch=={number} --index-url {CPU_INDEX}, then uninstall nvidia-* and triton"
    what = f"{version}: the build for CUDA {torch.version.cuda}, gigabytes of which tosaic uses nothing"
    return Finding("torch", "warning", what, hint)


def _tool(name: str) -> Finding:
    path, tool = program(name), TOOLS[name]
    if path is None:
        hint = f"apt-get install {tool.packages}, or let {variable(name)} name it"
        return Finding(name, "missing", MISSING, hint, tool.use)
    return Finding(name, "ok", f"{said_version(path)} at {path}", use=tool.use)


def _sandbox() -> Finding:
    path, use = shutil.which("bwrap"), "keeps what the simulator writes in its own folder"
    if path is None:
        return Finding("bubblewrap", "warning", MISSING, "apt-get install bubblewrap", use)
    return Finding("bubblewrap", "ok", f"at {path}", use=use)


def _native() -> Finding:
    name, use = "compiled modules", "make kernels in half the time"
    if not is_compiled():
        return Finding(name, "warning", "the modules that make kernels run as Python", f"{BUILD}, a minute", use)
    return Finding(name, "ok", f"{len(MODULES)} modules", use=use)
