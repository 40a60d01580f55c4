"""Batches of candidates on local worker processes."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import BinaryIO, Protocol, cast

from tosaic.support.errors import Error
from tosaic.support.processes import Server
from tosaic.tuner.measurement import Measure, Measurement, NamedT, Status
from tosaic.tuner.space import Schedule

START_SECONDS = 60.0
SECONDS_PER_TRIAL = 300.0


class Pending(Protocol):
    """A batch under way."""

    def result(self) -> list[Measurement]:
        """Wait for the measurements, one per schedule, in order."""
        ...


class Executor(Protocol):
    """Where batches run. Dask's `Client` and the executors of `concurrent.futures` are executors as they are."""

    def submit(
        self,
        measure: Measure[NamedT],
        task: NamedT,
        schedules: Sequence[Schedule],
        best: Measurement | None = None,
        /,
    ) -> Pending: ...


@dataclass
class Batch:
    """A batch given to `LocalWorkers`, whole or in the halves it was cut into after a worker died of it."""

    workers: LocalWorkers
    measure: bytes
    task: bytes
    schedules: list[Schedule]
    best: Measurement | None
    whole: Batch | None = None
    start: int = 0
    answers: list[Measurement | None] = field(default_factory=list)
    error: Exception | None = None

    def result(self) -> list[Measurement]:
        """Wait for the measurements.

        Raises:
            Exception: what the measure itself raised, which no candidate can cause.
        """
        while self.error is None and None in self.answers:
            self.workers.pump()
        if self.error is not None:
            raise self.error
        return cast("list[Measurement]", self.answers)


class LocalWorkers:
    """Runs batches on up to `count` processes of this machine (`slots`), each started when there is a batch for it.

    A worker may die, or hold a batch for longer than `seconds_per_trial` for each of its trials. It is then killed with
    all that it started, and replaced. The batch is halved and tried again until the candidate at fault stands alone,
    which is then a `crash` or `late`. Workers stand in process groups of their own, so that Ctrl-C reaches only the
    caller. Measure and task are pickled to the workers, which must be able to import their modules.
    """

    def __init__(self, count: int, seconds_per_trial: float = SECONDS_PER_TRIAL) -> None:
        self.slots, self._seconds_per_trial = count, seconds_per_trial
        self._queue: deque[Batch] = deque()
        self._workers: list[_Worker] = []

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let idle workers wait for the next `LocalWorkers`, and kill the others: what is under way is lost."""
        for worker in self._workers:
            if worker.batch is not None or not _WAITING.keep(worker):
                worker.kill()
        self._workers.clear()

    def submit(
        self,
        measure: Measure[NamedT],
        task: NamedT,
        schedules: Sequence[Schedule],
        best: Measurement | None = None,
        /,
    ) -> Batch:
        """Queue a batch.

        Raises:
            Error: the measure or the task cannot be pickled.
        """
        try:
            batch = Batch(self, pickle.dumps(measure), pickle.dumps(task), list(schedules), best)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise Error(f"task `{task.name}` cannot be sent to a worker process", why=str(error)) from None
        batch.answers = [None] * len(batch.schedules)
        if batch.schedules:
            self._queue.append(batch)
        self._dispatch()
        return batch

    def pump(self) -> None:
        """Wait until a worker answers, dies or is late, and give idle workers work.

        Raises:
            Error: a worker did not start.
        """
        busy = {worker.pipe: worker for worker in self._workers if worker.batch is not None}
        left = min(worker.deadline for worker in busy.values()) - time.monotonic()
        for pipe in wait(list(busy), max(0.0, left)):
            self._receive(busy[cast(Connection, pipe)])
        for worker in list(self._workers):
            if worker.batch is not None and time.monotonic() > worker.deadline:
                if not worker.ready:
                    raise Error(f"a measuring process did not start within {START_SECONDS:.0f} s")
                self._give_up(worker, "late", f"no answer within {worker.limit:.0f} s")
        self._dispatch()

    def _dispatch(self) -> None:
        while self._queue and (worker := self._idle()) is not None:
            batch = self._queue.popleft()
            worker.take(batch, self._seconds_per_trial * len(batch.schedules))

    def _idle(self) -> _Worker | None:
        """A worker that holds no batch, a new one if need be; None where there are enough of them."""
        for worker in self._workers:
            if worker.batch is None:
                return self._replace(worker) if worker.dead() else worker
        if len(self._workers) == self.slots:
            return None
        self._workers.append(_WAITING.take() or _Worker())
        return self._workers[-1]

    def _replace(self, worker: _Worker) -> _Worker:
        worker.kill()
        new = self._workers[self._workers.index(worker)] = _Worker()
        return new

    def _receive(self, worker: _Worker) -> None:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            if not worker.ready:
                raise Error("a measuring process did not start", why=worker.last_words()) from None
            self._give_up(worker, "crash", worker.last_words())
            return
        if not worker.ready:
            worker.start()
            return
        answers, error = answer
        batch, worker.batch = worker.batch, None
        assert batch is not None
        if error is None and len(answers) != len(batch.schedules):
            error = Error(f"the measure gave {len(answers)} measurements for {len(batch.schedules)} schedules")
        _settle(batch, answers or [], error)

    def _give_up(self, worker: _Worker, status: Status, message: str) -> None:
        batch = worker.batch
        assert batch is not None
        self._replace(worker)
        if len(batch.schedules) == 1:
            _settle(batch, [Measurement(status, message=message)], None)
        else:
            self._queue.extendleft(reversed(_halves(batch)))


class _Worker(Server):
    """A process of `worker.py`, and the batch it holds."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.ready = False
        self.started_in = _surroundings()
        self.limit = self.deadline = math.inf
        self._said: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill
        super().__init__("tosaic.tuner.worker", self._said)

    def take(self, batch: Batch, limit: float) -> None:
        self.batch, self.limit = batch, limit
        self.deadline = time.monotonic() + (limit if self.ready else START_SECONDS)
        # A worker that dies meanwhile is noticed where its answer is read.
        with contextlib.suppress(OSError):
            self.pipe.send((tempfile.gettempdir(), batch.measure, batch.task, batch.schedules, batch.best))

    def start(self) -> None:
        """It has imported what it needs: the time of its batch begins."""
        self.ready, self.deadline = True, time.monotonic() + self.limit

    def dead(self) -> bool:
        return self.process.poll() is not None

    def last_words(self) -> str:
        """How the process, whose pipe is closed, ended, and the end of what it wrote to stderr."""
        self.process.wait()
        size = os.fstat(self._said.fileno()).st_size
        text = os.pread(self._said.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()
        code = self.process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process died: {how}\n{text}".strip()

    def kill(self) -> None:
        super().kill()
        self._said.close()


class _Waiting:
    """Workers without work, as a process takes longer to start than to measure a small kernel."""

    MOST = 2

    def __init__(self) -> None:
        self._workers: list[_Worker] = []

    def keep(self, worker: _Worker) -> bool:
        """Whether there is room for a worker."""
        self._forget_others()
        if len(self._workers) == self.MOST or worker.started_in != _surroundings() or worker.dead():
            return False
        self._workers.append(worker)
        return True

    def take(self) -> _Worker | None:
        """One that was started as a new one would be; None where there is none."""
        self._forget_others()
        while self._workers:
            worker = self._workers.pop()
            if not worker.dead():
                return worker
            worker.kill()
        return None

    def _forget_others(self) -> None:
        """Kill those that were started in another environment."""
        now = _surroundings()
        for worker in [worker for worker in self._workers if worker.started_in != now]:
            worker.kill()
            self._workers.remove(worker)


_WAITING = _Waiting()


def _surroundings() -> object:
    """What a process takes over from the one that starts it, but the folder of temporary files, which batches name."""
    return {name: text for name, text in os.environ.items() if name != "TMPDIR"}, os.getcwd(), list(sys.path)


def _halves(batch: Batch) -> list[Batch]:
    middle = len(batch.schedules) // 2
    whole = batch.whole or batch
    return [
        Batch(batch.workers, batch.measure, batch.task, part, batch.best, whole, start)
        for part, start in (
            (batch.schedules[:middle], batch.start),
            (batch.schedules[middle:], batch.start + middle),
        )
    ]


def _settle(batch: Batch, answers: Sequence[Measurement], error: Exception | None) -> None:
    whole = batch.whole or batch
    whole.error = whole.error or error
    whole.answers[batch.start : batch.start + len(answers)] = answers
