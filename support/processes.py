"""Child processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_SETPRIV = "/usr/bin/setpriv"  # of util-linux


def ends_with_parent(command: Sequence[str]) -> list[str]:
    """The command line under which `command` is killed when the thread that starts it ends, however that ends.

    Where there is no setpriv, the command as it is.
    """
    return [_SETPRIV, "--pdeathsig", "KILL", *command] if Path(_SETPRIV).exists() else list(command)
