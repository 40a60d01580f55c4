"""Parts of a target that its file names: the core, and sections of Vela's configuration."""

from __future__ import annotations

from pathlib import Path

from tosaic.backends.cores import find_core
from tosaic.backends.ethos_u.vela import checked_config
from tosaic.backends.target import Core
from tosaic.support.errors import Error
from tosaic.target_files.schema import CoreTable


def core_of(given: str | CoreTable) -> Core:
    """The core that a file names, or declares.

    Raises:
        Error: there is none of that name.
    """
    if isinstance(given, str):
        return find_core(given)
    return Core(given.name, given.triple, given.isa, given.float_abi)


def vela_config_of(file: str) -> str:
    """The text of a file of Vela's configuration; of none, none.

    Raises:
        Error: it does not read, or has not the format.
    """
    if not file:
        return ""
    try:
        return checked_config(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Error(f"cannot read `{file}`", why=why or "") from None
