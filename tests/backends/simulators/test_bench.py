"""Trials under the monitor, on a board that QEMU emulates behind a pty."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from maximum import MaximumTask

from benchmarks.bench_board import DamagedLine, emulated_board
from tosaic.backends.bench import link
from tosaic.backends.bench.board import SerialBoard
from tosaic.backends.bench.link import FrameKind, opened
from tosaic.backends.bench.monitor import Monitor, build_monitor
from tosaic.backends.boards import MICROBIT, MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.target import Target
from tosaic.compiler.tuning import _objective
from tosaic.support.errors import Error, SimulatorError
from tosaic.target_files.ready import find_target
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule

TARGET = find_target("cortex-m55")
AN386 = Path(__file__).parents[3] / "examples/targets/mps2-an386.toml"
NANOSECONDS_PER_INSTRUCTION, MEGAHERTZ = 32, 32
CODE = 0x6000_0000


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with emulated_board(TARGET) as port:
        yield port


def trials(
    where: str, names: list[str], best: Measurement | None = None, target: Target = TARGET, **options
) -> list[Measurement]:
    board = SerialBoard.at(where, target)
    measure = BatchMeasure(board, target.core, board.layout, **options)
    return measure(MaximumTask(), [Schedule(name) for name in names], best)


def test_cycles_are_those_of_the_counter(port):
    names = ["good", "long", "table", "good"]
    simulated = BatchMeasure(Qemu(CORTEX_M55, MPS3_AN547), CORTEX_M55, TARGET.trials)
    expected = simulated(MaximumTask(), [Schedule(name) for name in names])
    found = trials(port, names)
    for one, other in zip(found, expected, strict=True):
        ticks = other.instructions * NANOSECONDS_PER_INSTRUCTION * MEGAHERTZ / 1000
        assert (one.status, one.instructions, one.waits) == ("ok", 0, 0)
        assert one.cycles is not None and abs(one.cycles - ticks) <= 3


def test_bad_candidates_are_marked_and_the_rest_measured(port):
    names = ["refused", "good", "crash", "beyond", "broken", "hang", "scratch", "spoiled", "last", "good"]
    results = trials(port, names, region_limit=3_000_000)
    assert [result.status for result in results] == [
        "illegal", "ok", "crash", "wrong", "compile-error", "timeout", "wrong", "wrong", "wrong", "ok",
    ]  # fmt: skip
    assert "the core faulted in `maximum_crash" in results[2].message
    assert "more than 3000000 cycles" in results[5].message
    assert results[8].message == "output 0 differs at byte 396"
    assert results[1].cycles == results[9].cycles


def test_a_candidate_that_is_slower_than_the_best_is_given_up(port):
    results = trials(port, ["good", "hang", "good"], Measurement("ok", cycles=1_500_000))
    assert [result.status for result in results] == ["ok", "slow", "ok"]


def test_a_core_without_a_cycle_model_has_cycles():
    target = find_target(str(AN386))
    with emulated_board(target) as port:
        fast, crashed, slow = trials(port, ["good", "crash", "long"], target=target)
    assert crashed.status == "crash" and "maximum_crash" in crashed.message
    assert fast.ok and slow.ok and 100 < (fast.cycles or 0) < 3000 < 300_000 < (slow.cycles or 0)


def test_a_core_of_armv6_m_counts_by_systick():
    target = replace(find_target("cortex-m0plus"), board=MICROBIT)
    with emulated_board(target) as port:
        with opened(port, 115_200) as line:
            assert Monitor(line).identity.counter == "SysTick"
        results = trials(port, ["good", "hang", "last", "long", "good"], target=target, region_limit=3_000_000)
    assert [result.status for result in results] == ["ok", "timeout", "wrong", "ok", "ok"]
    assert results[0].cycles == results[4].cycles and 100 < (results[0].cycles or 0) < 3000
    assert 300_000 < (results[3].cycles or 0) < 3_000_000


def test_damaged_bytes_change_nothing(port):
    names = ["good", "last", "crash", "table"]
    expected = trials(port, names)
    with DamagedLine(port, 0.01) as line:
        assert trials(line.port, names) == expected
        assert line.damaged > 20


def test_only_what_differs_is_sent(port):
    data = os.urandom(3000)
    with DamagedLine(port, 0) as line, opened(line.port, 115_200) as link_:
        monitor = Monitor(link_)
        monitor.write(CODE, data)
        first = line.bytes
        monitor.write(CODE, data)
        again = line.bytes - first
        changed = data[:1500] + bytes([data[1500] ^ 1]) + data[1501:]
        monitor.write(CODE, changed)
        assert monitor.read(CODE, len(data)) == changed
        assert first > 3000 > 400 > again
        assert line.bytes - first - again < 2 * 400 + 200 + 3200  # checks, one block, and what was read


def test_the_first_request_of_the_next_host_is_no_repetition(port):
    """Though it has the number of the last request of the host before."""
    with opened(port, 115_200) as link_:
        Monitor(link_).write(CODE, b"before")
        last = link_._sequence
    with opened(port, 115_200) as link_:
        link_._sequence = (last - 1) % 256
        assert Monitor(link_).read(CODE, 6) == b"before"


def test_a_request_that_comes_twice_is_done_once(port, monkeypatch):
    """The image behind RUN counts how often it started."""
    with opened(port, 115_200) as link_:
        monitor = Monitor(link_)
        monitor.write(CODE, bytes(4))
        # ldr r1, =CODE; ldr r0, [r1]; adds r0, #1; str r0, [r1]; svc 0xab
        code = bytes.fromhex("0249 0868 0130 0860 abdf c046") + CODE.to_bytes(4, "little")
        monitor.write(CODE + 16, code)
        monkeypatch.setattr(link_, "_port", _Stutter(link_._port))
        event = monitor.run(CODE + 17, CODE + 4096, 1000, 5)
        assert event.kind is FrameKind.CALL
        assert int.from_bytes(monitor.read(CODE, 4), "little") == 1


class _Stutter:
    """A port that sends everything twice."""

    def __init__(self, port) -> None:
        self.__dict__["_port"] = port

    def write(self, data: bytes) -> None:
        self._port.write(data + data)

    def __getattr__(self, name: str):
        return getattr(self._port, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._port, name, value)


def test_the_monitor_keeps_its_own_memory(port):
    with opened(port, 115_200) as link_, pytest.raises(SimulatorError, match="refuses to LOAD"):
        Monitor(link_)._ask(FrameKind.LOAD, (0x2007_E000).to_bytes(4, "little") + b"data")


def test_a_monitor_of_another_target_is_refused(port):
    other = replace(TARGET, name="my-board")
    with pytest.raises(Error, match=r"another\n.*of cortex-m55`, and images are made for `.*of my-board`\n.*flash"):
        SerialBoard.at(port, other)


def test_a_figure_of_a_board_is_none_of_the_model(port):
    board = SerialBoard.at(f"{port}?baud=230400", TARGET)
    assert board.version().startswith("serial: cycles by SysTick, CPUID 0x410fd221; tosaic monitor ")
    assert _objective(TARGET.core, None, board) == "cycles"
    with pytest.raises(Error, match="a board does not count instructions"):
        _objective(TARGET.core, "instructions", board)


@pytest.mark.parametrize(
    "where, message",
    [
        ("/dev/nothing", "`/dev/nothing` cannot be opened"),
        ("/dev/ttyACM0?speed=9600", "names no board\n  try: serial:/dev/ttyACM0"),
        ("", "names no board"),
    ],
)
def test_a_port_that_is_none(where, message):
    with pytest.raises(Error, match=message):
        SerialBoard.at(where, TARGET)


def test_nobody_answers(monkeypatch):
    monkeypatch.setattr(link, "_SECONDS_TO_ANSWER", 0.3)
    near, far = os.openpty()
    started = time.monotonic()
    with pytest.raises(SimulatorError, match="does not answer\n  try: is it flashed"):
        SerialBoard.at(os.ttyname(far), TARGET)
    assert time.monotonic() - started < 5
    os.close(near)
    os.close(far)


def test_a_target_without_a_uart(tmp_path):
    bare = replace(TARGET, board=replace(TARGET.board, uart=None))
    with pytest.raises(Error, match=r"serial port of `cortex-m55` is driven is not known\n.*--uart FILE\.c"):
        build_monitor(bare, tmp_path, 115_200)
    own = tmp_path / "own.c"
    own.write_text(
        '#include "uart.h"\nvoid uart_init(uint32_t baud) { (void)baud; }\n'
        "uint8_t uart_get(void) { return 0; }\nvoid uart_put(uint8_t byte) { (void)byte; }\n"
    )
    assert build_monitor(bare, tmp_path / "monitor", 115_200, own).exists()
    assert sorted(path.name for path in (tmp_path / "monitor").iterdir()) == ["monitor.bin", "monitor.elf"]
