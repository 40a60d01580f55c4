"""One measuring process: takes batches from a pipe until the pipe closes. Started by `measure.py`."""

from __future__ import annotations

import functools
import pickle
import sys
import traceback
from multiprocessing.connection import Connection

from tosaic.support.processes import served
from tosaic.support.scratch import use_for_temporary_files


@functools.lru_cache(maxsize=32)
def _load(data: bytes) -> object:
    return pickle.loads(data)


def serve(pipe: Connection) -> None:
    """Answer each (folder of temporary files, measure, task, schedules, best) with (measurements, error).

    Measure and task are pickled by themselves.
    """
    pipe.send("ready")
    while True:
        try:
            folder, measure, task, schedules, best = pipe.recv()
        except EOFError:
            return
        use_for_temporary_files(folder)
        answer: tuple[object, Exception | None]
        try:
            answer = (_load(measure)(_load(task), schedules, best), None)  # type: ignore[operator]
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = (None, error)
        _send(pipe, answer)


def _send(pipe: Connection, answer: tuple[object, Exception | None]) -> None:
    try:
        pipe.send(answer)
    except BrokenPipeError:
        sys.exit()
    except (pickle.PicklingError, TypeError, AttributeError):
        pipe.send((None, RuntimeError(repr(answer[1] or answer[0]))))


if __name__ == "__main__":
    with served() as connection:
        serve(connection)
