"""What the user sees: results on stdout, progress and messages on stderr, errors without a traceback."""

from __future__ import annotations

import functools
import json
import logging
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from typing import TextIO, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tosaic.support.errors import Error
from tosaic.support.scratch import temporary_files

_T = TypeVar("_T")
_PIPE_WIDTH = 150
INTERRUPTED = 128 + signal.SIGINT
FAULT = "this is a fault of tosaic"
# Names of files and models are no markup.
stdout = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False)
stderr = Console(stderr=True, markup=False)


_results: ContextVar[TextIO | None] = ContextVar("_results", default=None)
"""Where `print_json` prints; stdout where None."""


def print_json(result: dict) -> None:
    """One object, one line, nothing else on stdout."""
    click.echo(json.dumps(result, allow_nan=False), file=_results.get())


@contextmanager
def json_alone() -> Iterator[None]:
    """Let stdout hold what `print_json` prints and nothing else: what a model's own code prints goes to stderr."""
    before = _results.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.reset(before)


def show(value: _T, as_json: bool, result: Callable[[_T], dict], report: Callable[[_T], object]) -> None:
    """Print `value` as the JSON object that `result` makes of it, or by `report`."""
    if as_json:
        print_json(result(value))
    else:
        report(value)


def print_facts(facts: list[tuple[str, str]]) -> None:
    """Names and what there is to say of each."""
    table = Table(show_header=False, box=None)
    for name, value in facts:
        table.add_row(Text(name, style="bold"), value)
    stdout.print(table)


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


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the body as an exit does, so that nothing is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Commands(click.Group):
    """Commands of which one that is called wrongly, with `--json`, prints an object, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(__name__, "--json" in args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if ctx.meta.pop(__name__, False):
                print_json(error_result(Error(error.format_message())))
            raise


def reports_errors(command: Callable) -> Callable:
    """Turn what is raised into a message and exit code 1, Ctrl-C into exit code 130; `--debug` shows the traceback.

    With `--json` the message is an object on stdout, too.
    """

    @functools.wraps(command)
    def guarded(*args, debug: bool, **kwargs):
        as_json = kwargs.get("as_json", False)
        try:
            with quiet_libraries(), ended_by_sigterm(), temporary_files(), json_alone() if as_json else nullcontext():
                return command(*args, **kwargs)
        except Exception as error:
            if debug:
                traceback.print_exc()
            explained = _explained(error)
            stderr.print("error: ", end="", style="bold red")
            stderr.print(str(explained), highlight=False, soft_wrap=True)
            if as_json:
                print_json(error_result(explained))
            sys.exit(1)
        except KeyboardInterrupt:
            stderr.print("interrupted")
            if as_json:
                print_json(error_result(Error("interrupted")))
            sys.exit(INTERRUPTED)

    return click.option("--debug", is_flag=True, help="Show a traceback with an error.")(guarded)


def error_result(error: Error) -> dict:
    """What a command prints with `--json` where it fails."""
    return {"error": {"what": error.what, "where": error.where, "why": error.why, "hint": error.hint}}


def _explained(error: Exception) -> Error:
    if isinstance(error, Error):
        return error
    if isinstance(error, OSError) and error.strerror:
        return Error(error.strerror, where=str(error.filename or ""))
    return Error(FAULT, why=f"{type(error).__name__}: {error}", hint="--debug shows where; please report it")
