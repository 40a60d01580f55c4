"""Plans of streams of any shape, without code."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.row_map import RowMap
from tosaic.backends.cortex_m.streams.stage import EDGE, Argument, Stage
from tosaic.backends.cortex_m.streams.stream import Stream


def window(height: int, kernel: int, stride: int, pad: tuple[int, int]) -> tuple[RowMap, int]:
    return RowMap(stride, pad[0], kernel), (height + sum(pad) - kernel) // stride + 1


@st.composite
def plans(draw, fed: str | None = None) -> Plan:
    """A chain of windows and repetitions, in which now and then a stage reads what an earlier one made, too."""
    height = draw(st.integers(4, 40))
    made, heights = ["x"], {"x": height}
    stages, reads = [], []
    for number in range(draw(st.integers(1, 6))):
        source = made[-1]
        kernel = draw(st.integers(1, min(5, heights[source])))
        pad = draw(st.tuples(st.integers(0, kernel - 1), st.integers(0, kernel - 1)))
        rows, out = window(heights[source], kernel, draw(st.integers(1, 3)), pad)
        if draw(st.integers(0, 3)) == 0:
            rows = RowMap(up=draw(st.integers(2, 3)))
            out = rows.up * heights[source]
        arguments = [Argument(rows, heights[source], 16, padding=draw(st.sampled_from([9, 255, EDGE])))]
        names = [source]
        beside = [name for name in made[:-1] if heights[name] == out and rows.up == 1]
        if beside and draw(st.booleans()):
            other = draw(st.sampled_from(beside))
            arguments.append(Argument(RowMap(), out, 16))
            names.append(other)
        name = f"t{number}"
        stages.append(Stage(b"function", tuple(arguments), out, 16))
        reads.append(tuple(names))
        made.append(name)
        heights[name] = out
    stream = Stream(tuple(stages), tuple(reads), tuple(made[1:]), ("x",), (made[-1],), fed)
    assume(not fed or stream.is_legal())
    slack, thrift = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    together = stream.stages[-1].together
    if not fed and draw(st.booleans()):
        return Plan(in_two_parts(stream), together, slack, thrift)
    return Plan(stream.with_copies(), together * draw(st.integers(1, 5)), slack, thrift)


def in_two_parts(stream: Stream) -> Stream:
    """A stream that makes the rows of twice the width, whose parts do not meet."""
    stages, reads, writes = list[Stage](), list[tuple[str, ...]](), list[str]()
    for part in range(2):
        copy = Argument(RowMap(), stream.readers("x")[0][1].height, 16, pitch=32, offset=16 * part)
        stages += [Stage(b"", (copy,), copy.height, 16), *stream.stages[:-1]]
        stages.append(replace(stream.stages[-1], pitch=32, offset=16 * part))
        reads += [("x",), *(tuple(f"{name}{part}" for name in names) for names in stream.reads)]
        writes += [f"x{part}", *(f"{name}{part}" for name in stream.writes[:-1]), stream.writes[-1]]
    return replace(stream, stages=tuple(stages), reads=tuple(reads), writes=tuple(writes))


@st.composite
def sliding_plans(draw) -> Plan:
    """A chain of windows without padding, with shortcuts that leave the first rows out; now and then the last rows."""
    heights, made = [draw(st.integers(6, 40))], ["x"]
    stages, reads = list[Stage](), list[tuple[str, ...]]()

    def add(arguments: list[Argument], names: list[str], height: int, function: bytes = b"function") -> None:
        stages.append(Stage(function, tuple(arguments), height, 16))
        reads.append(tuple(names))
        made.append(f"t{len(made)}")
        heights.append(height)

    for _ in range(draw(st.integers(1, 5))):
        source, height = made[-1], heights[-1]
        rows, out = window(height, draw(st.integers(1, min(4, height))), draw(st.integers(1, 2)), (0, 0))
        add([Argument(rows, height, 16)], [source], out)
        if rows.stride == 1 and height > out and draw(st.booleans()):
            window_of = made[-1]
            add([Argument(RowMap(before=out - height), height, 16)], [source], out, b"")
            add([Argument(RowMap(), out, 16), Argument(RowMap(), out, 16)], [window_of, made[-1]], out)
    if heights[-1] > 1 and draw(st.booleans()):
        kept = draw(st.integers(1, heights[-1] - 1))
        add([Argument(RowMap(before=kept - heights[-1]), heights[-1], 16)], [made[-1]], kept, b"")
    outputs = (made[-1],)
    stream = Stream(tuple(stages), tuple(reads), tuple(made[1:]), ("x",), outputs, "x", True).keeping_last_rows()
    assume(stream.is_legal())
    return Plan(stream.without_slices().with_copies(), 1, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
