"""Foreign code that may abort runs in a process of its own, asked again and again, and replaced when it dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

from tosaic.support.processes import Server, served

_T = TypeVar("_T")
_own = threading.local()


def in_child(function: Callable[..., _T], *arguments: object) -> _T:
    """What `function`, found by its name, returns in the child process of this thread, which prints nothing.

    Raises:
        ChildProcessError: the process died.
        Exception: what `function` raised.
    """
    server: Server | None = getattr(_own, "server", None)
    if server is None or _own.parent != os.getpid():
        server, _own.parent = Server(__name__), os.getpid()
        _own.server = server
    try:
        server.pipe.send((function, arguments))
        result, error = server.pipe.recv()
    except BaseException as failure:
        # Whatever it answers from now on is no answer to what is asked next.
        del _own.server
        server.kill()
        if isinstance(failure, (EOFError, OSError)):
            raise ChildProcessError("the process died") from None
        raise
    if error is not None:
        raise error
    return result


def _serve(pipe: Connection) -> None:
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        answer: tuple[object, Exception | None]
        try:
            answer = function(*arguments), None
        except Exception as error:
            answer = None, error
        pipe.send(answer)


if __name__ == "__main__":
    with served() as connection:
        _serve(connection)
