"""Child processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_SETPRIV = "/usr/bin/setpriv"  # of util-linux


def ends_with_parent(command: Sequence[str]) -> list[str]:
    """The command line under which `command` is killed when the thread that starts it ends, however that ends.

    Where there is no setpriv, the command as it is.
    """
    return [_SETPRIV, "--pdeathsig", "KILL", *command] if Path(_SETPRIV).exists() else list(command)


def confined(command: Sequence[str], folder: Path) -> list[str]:
    """The command line under which `command` writes nowhere but in `folder`, reaches no network, and ends as above.

    Where there is no bubblewrap, or the kernel grants it no namespaces, `command` is not confined.
    """
    jail = _jail()
    return [*jail, "--bind", str(folder), str(folder), "--", *command] if jail else ends_with_parent(command)


@cache
def _jail() -> tuple[str, ...]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return ()
    jail = (bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-all", "--die-with-parent", "--new-session")
    return jail if subprocess.run([*jail, "--", "true"], capture_output=True).returncode == 0 else ()
