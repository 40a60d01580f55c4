"""Parts of a target that its file names: the core, and sections of Vela's configuration."""

from __future__ import annotations

import configparser
from pathlib import Path

from tosaic.backends.cores import find_core
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError, Error
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
        return _checked(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Error(f"cannot read `{file}`", why=why or "") from None


def _checked(text: str) -> str:
    """A text as sections of Vela's configuration.

    Raises:
        BackendError: it has not the format; the message names the line.
    """
    parser = configparser.ConfigParser(inline_comment_prefixes=(";", "#"))
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise BackendError("this is no configuration of Vela's", why=" ".join(str(error).split())) from None
    return text
