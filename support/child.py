"""Foreign code that may abort runs in a process of its own, asked again and again, and replaced when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

from tosaic.support.processes import ends_with_parent

_T = TypeVar("_T")
_own = threading.local()


def in_child(function: Callable[..., _T], *arguments: object) -> _T:
    """What `function`, found by its name, returns in the child process of this thread, which prints nothing.

    Raises:
        ChildProcessError: the process died.
        Exception: what `function` raised.
    """
    child: _Child | None = getattr(_own, "child", None)
    if child is None or child.parent != os.getpid():
        child = _own.child = _Child()
    try:
        result, error = child.ask(function, arguments)
    except BaseException as failure:
        # Whatever it answers from now on is no answer to what is asked next.
        del _own.child
        child.end()
        if isinstance(failure, (EOFError, OSError)):
            raise ChildProcessError("the process died") from None
        raise
    if error is not None:
        raise error
    return result


class _Child:
    """A process of this module. In a process group of its own, so that Ctrl-C reaches only the parent."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                ends_with_parent([sys.executable, "-P", "-m", __name__, str(theirs.fileno())]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        self._pipe.send(sys.path)

    def ask(self, function: Callable, arguments: tuple[object, ...]) -> tuple:
        self._pipe.send((function, arguments))
        return self._pipe.recv()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()


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
    with Connection(int(sys.argv[1])) as connection:
        sys.path[:] = connection.recv()
        _serve(connection)
