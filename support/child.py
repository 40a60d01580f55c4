"""Foreign code that may abort runs in a process of its own, asked again and again, and replaced when it dies."""

from __future__ import annotations

import os
import resource
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeVar

from tosaic.support.processes import Server, served
from tosaic.support.scratch import use_for_temporary_files

_T = TypeVar("_T")
_own = threading.local()


@dataclass(frozen=True)
class Bounds:
    """What a call may take.

    Args:
        seconds: of wall time.
        bytes: of memory, for the process and each of those that it starts.
    """

    seconds: float
    bytes: int


def in_child(function: Callable[..., _T], *arguments: object, bounds: Bounds | None = None) -> _T:
    """What `function`, found by its name, returns in the child process of this thread, which prints nothing.

    Raises:
        ChildProcessError: the process died.
        TimeoutError: it took more time than allowed, and was killed.
        Exception: what `function` raised.
    """
    if getattr(_own, "parent", None) != os.getpid():
        _own.servers, _own.parent = {}, os.getpid()
    server: Server = _own.servers.get(bounds) or _started(bounds)
    try:
        server.pipe.send((tempfile.gettempdir(), function, arguments))
        if bounds and not server.pipe.poll(bounds.seconds):
            raise TimeoutError(f"it took more than {bounds.seconds:g} s")
        result, error = server.pipe.recv()
    except BaseException as failure:
        # Whatever it answers from now on is no answer to what is asked next.
        del _own.servers[bounds]
        server.kill()
        if isinstance(failure, (EOFError, OSError)) and not isinstance(failure, TimeoutError):
            raise ChildProcessError("the process died") from None
        raise
    if error is not None:
        raise error
    return result


def _started(bounds: Bounds | None) -> Server:
    server = _own.servers[bounds] = Server(__name__)
    if bounds:
        in_child(resource.setrlimit, resource.RLIMIT_DATA, (bounds.bytes, bounds.bytes), bounds=bounds)
    return server


def _serve(pipe: Connection) -> None:
    while True:
        try:
            folder, function, arguments = pipe.recv()
        except EOFError:
            return
        use_for_temporary_files(folder)
        answer: tuple[object, Exception | None]
        try:
            answer = function(*arguments), None
        except Exception as error:
            answer = None, error
        pipe.send(answer)


if __name__ == "__main__":
    with served() as connection:
        _serve(connection)
