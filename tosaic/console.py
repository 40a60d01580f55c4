"""What the user sees: results on stdout, progress and messages on stderr, errors without a traceback."""

from __future__ import annotations

import functools
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from tosaic.support.errors import Error

_PIPE_WIDTH = 150
# Names of files and models are no markup.
stdout = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False)
stderr = Console(stderr=True, markup=False)


def print_json(result: dict) -> None:
    """One object, one line, nothing else on stdout."""
    click.echo(json.dumps(result, allow_nan=False))


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep what PyTorch and its kind log and warn of, which no user can act on, off stderr."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def reports_errors(command: Callable) -> Callable:
    """Turn an Error into a message and exit code 1, Ctrl-C into exit code 130; `--debug` shows the traceback."""

    @functools.wraps(command)
    def guarded(*args, debug: bool, **kwargs):
        try:
            with quiet_libraries():
                return command(*args, **kwargs)
        except Error as error:
            if debug:
                traceback.print_exc()
            stderr.print("error: ", end="", style="bold red")
            stderr.print(str(error), highlight=False, soft_wrap=True)
            sys.exit(1)
        except KeyboardInterrupt:
            stderr.print("interrupted")
            sys.exit(130)

    return click.option("--debug", is_flag=True, help="Show a traceback with an error.")(guarded)
