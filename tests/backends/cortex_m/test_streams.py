"""Streams: which rows make which, how much of a tensor is kept, and how far an output may lie over an input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_plans import plans, sliding_plans
from tosa_graphs import Graph

from tosaic.backends.cortex_m.streams.across import groups, stage_across
from tosaic.backends.cortex_m.streams.layout import lay_out, least_bytes
from tosaic.backends.cortex_m.streams.parts import side_by_side
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.row_map import RowMap
from tosaic.backends.cortex_m.streams.stage import EDGE, Argument, Stage, stage_of, strip
from tosaic.backends.cortex_m.streams.stream import Stream
from tosaic.backends.reference import evaluate
from tosaic.support.mlir import bare_bytecode, functions, ir, parse, shape_of

RNG = np.random.default_rng(5)


def function_of(graph: Graph, result: ir.Value) -> tuple[ir.Module, ir.Operation]:
    module = graph.module(result)
    return module, functions(module)["main"]


def convolution(graph: Graph, x: ir.Value, kernel: tuple[int, int], channels: int = 16, **window) -> ir.Value:
    weights = RNG.integers(-128, 128, (channels, *kernel, 16)).astype(np.int8)
    y = graph.conv2d(x, weights, RNG.integers(-4000, 4000, channels), input_zero=-7, **window)
    return graph.requantize(y, "i8", 1e-3)


def test_a_convolution_reads_windows_of_rows_and_the_zero_point_around_them():
    graph = Graph()
    x = graph.input((1, 9, 4, 16))
    y = convolution(graph, x, (3, 3), pad=(1, 1, 1, 1), stride=(2, 1), dilation=(1, 1))
    module, function = function_of(graph, y)
    stage = stage_of(function)
    assert stage == Stage(
        bare_bytecode(module), (Argument(RowMap(2, 1, 3), 9, 64, padding=-7 & 0xFF),), height=5, bytes=64
    )


def test_what_needs_more_than_a_strip_is_no_stage():
    graph = Graph()
    x = graph.input((1, 8, 4, 16))
    wide = graph.op("cast", [x], (1, 8, 4, 16), "i32")
    _, total = function_of(graph, graph.reduce("reduce_sum", wide, 1))
    assert stage_of(total) is None
    padded = Graph()
    x = padded.input((1, 8, 4, 16))
    _, pool = function_of(padded, padded.pool("max_pool2d", x, (3, 3), (1, 1), (1, 1, 1, 1)))
    assert stage_of(pool) is None


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_strip_computes_those_rows(rows):
    graph = Graph()
    x = graph.input((1, 9, 4, 16))
    y = convolution(graph, x, (3, 3), pad=(0, 0, 1, 1), stride=(2, 1), dilation=(1, 1))
    module, function = function_of(graph, y)
    image = RNG.integers(-128, 128, (1, 9, 4, 16)).astype(np.int8)
    (whole,) = evaluate(module, [image])
    stage = stage_of(function)
    assert stage is not None
    (argument,) = stage.arguments
    assert argument.rows is not None
    (part,) = evaluate(parse(strip(stage, rows)), [image[:, argument.rows.first(1) :][:, : argument.rows.count(rows)]])
    np.testing.assert_array_equal(part, whole[:, 1 : 1 + rows])


@pytest.mark.parametrize("times", [2, 3])
def test_rows_that_are_repeated_are_made_together(times):
    graph = Graph()
    module, function = function_of(graph, repeated(graph, times, 1 - times))
    image = RNG.integers(-128, 128, (1, 6, 4, 16)).astype(np.int8)
    (whole,) = evaluate(module, [image])
    np.testing.assert_array_equal(whole, image.repeat(times, 1).repeat(times, 2))
    stage = stage_of(function)
    assert stage is not None and stage.together == times
    assert stage.arguments == (Argument(RowMap(up=times), 6, 64, padding=EDGE),)
    (part,) = evaluate(parse(strip(stage, 2 * times)), [image[:, 3:5]])
    np.testing.assert_array_equal(part, whole[:, 3 * times : 5 * times])


def transposed(graph: Graph, tall: int) -> ir.Value:
    weights = RNG.integers(-128, 128, (8, tall, 2, 16)).astype(np.int8)
    y = graph.transpose_conv2d(graph.input((1, 6, 4, 16)), weights, RNG.integers(-4000, 4000, 8), stride=(2, 2))
    return graph.requantize(y, "i8", 1e-3)


def test_a_transposed_convolution_whose_kernels_do_not_meet_makes_rows_of_one():
    module, function = function_of(graph := Graph(), transposed(graph, 2))
    image = RNG.integers(-128, 128, (1, 6, 4, 16)).astype(np.int8)
    (whole,) = evaluate(module, [image])
    stage = stage_of(function)
    assert stage is not None and stage.arguments == (Argument(RowMap(up=2), 6, 64),)
    (part,) = evaluate(parse(strip(stage, 4)), [image[:, 3:5]])
    np.testing.assert_array_equal(part, whole[:, 6:10])


def test_a_transposed_convolution_whose_kernels_meet_is_no_stage():
    _, function = function_of(graph := Graph(), transposed(graph, 3))
    assert stage_of(function) is None


@pytest.mark.parametrize(
    ("mode", "scale", "offset", "rows"),
    [
        ("NEAREST_NEIGHBOR", (4, 2), 0, RowMap(up=2, reach=2)),
        ("BILINEAR", (4, 2), -1, RowMap(up=2, before=1, reach=3)),
        ("BILINEAR", (6, 2), -2, RowMap(up=3, before=1, reach=3)),
        ("BILINEAR", (3, 2), 0, RowMap(up=3, stride=2, reach=3)),
        ("BILINEAR", (2, 4), 1, RowMap(stride=2, reach=2)),
    ],
)
def test_resizing_reads_the_rows_at_the_edges_again(mode, scale, offset, rows):
    graph = Graph()
    (up, down), height = scale, 6
    border = (height * up // down - 1) * down - (height - 1) * up + offset
    y = graph.resize(graph.input((1, height, 4, 16)), mode, (*scale, 1, 1), (offset, 0), (border, 0))
    module, function = function_of(graph, y)
    image = RNG.integers(-128, 128, (1, height, 4, 16)).astype(np.int8)
    (whole,) = evaluate(module, [image])
    stage = stage_of(function)
    assert stage is not None
    assert stage.arguments == (Argument(rows, height, 64, padding=EDGE),)
    below = max(0, rows.end(stage.height) - height)
    padded = np.pad(image, ((0, 0), (rows.before, below), (0, 0), (0, 0)), "edge")
    for made in range(0, stage.height, rows.up):
        read = padded[:, rows.first(made) + rows.before :][:, : rows.reach]
        (part,) = evaluate(parse(strip(stage, rows.up)), [read])
        np.testing.assert_array_equal(part, whole[:, made : made + rows.up])


def repeated(graph: Graph, times: int, offset: int) -> ir.Value:
    """An image of `times` as many rows and columns, of which the first begins at `offset` halves of a pixel."""
    scale, border = (2 * times, 2, 2 * times, 2), 2 * times - 2 + offset
    return graph.resize(graph.input((1, 6, 4, 16)), "NEAREST_NEIGHBOR", scale, (offset, offset), (border, border))


def test_a_slice_begins_with_the_first_row_that_it_takes():
    graph = Graph()
    x = graph.input((1, 9, 4, 16))
    module, function = function_of(graph, graph.slice(x, (0, 2, 1, 0), (1, 6, 2, 16)))
    stage = stage_of(function)
    assert stage is not None
    assert stage.arguments[0].rows == RowMap(before=-2)
    image = RNG.integers(-128, 128, (1, 9, 4, 16)).astype(np.int8)
    (part,) = evaluate(parse(strip(stage, 2)), [image[:, 2:4]])
    np.testing.assert_array_equal(part, evaluate(module, [image])[0][:, :2])


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 2)])
def test_groups_of_channels_are_computed_by_their_own_weights(first, count):
    graph = Graph()
    x = graph.input((1, 3, 4, 16))
    weights = RNG.integers(-128, 128, (48, 1, 1, 16)).astype(np.int8)
    y = graph.conv2d(x, weights, RNG.integers(-4000, 4000, 48), input_zero=-7)
    y = graph.requantize(y, "i8", RNG.uniform(1e-3, 2e-3, 48))
    module, function = function_of(graph, y)
    stage = stage_across(function)
    assert stage is not None
    assert (stage.arguments, stage.height, stage.bytes) == ((Argument(None, 1, 192),), 3, 192)
    image = RNG.integers(-128, 128, (1, 3, 4, 16)).astype(np.int8)
    (part,) = evaluate(parse(groups(stage, first, count)), [image])
    (whole,) = evaluate(module, [image])
    np.testing.assert_array_equal(part, whole[..., 16 * first : 16 * (first + count)])


def test_a_pool_keeps_channels_apart_and_a_table_as_long_as_they_are_stays_whole():
    graph = Graph()
    x = graph.input((1, 3, 4, 256))
    y = graph.pool("max_pool2d", graph.table(x, RNG.integers(-128, 128, 256).astype(np.int8)), (3, 4), (1, 1))
    module, function = function_of(graph, y)
    stage = stage_across(function)
    assert stage is not None
    assert (stage.arguments, stage.height, stage.bytes) == ((Argument(RowMap(), 16, 192),), 16, 16)
    image = RNG.integers(-128, 128, (1, 3, 4, 256)).astype(np.int8)
    (part,) = evaluate(parse(groups(stage, 3, 1)), [image[..., 48:64]])
    np.testing.assert_array_equal(part, evaluate(module, [image])[0][..., 48:64])


def test_what_mixes_channels_behind_a_value_is_not_made_across_them():
    graph = Graph()
    x = graph.input((1, 9, 4, 16))
    y = convolution(graph, x, (1, 1), channels=24)
    _, function = function_of(graph, y)
    assert stage_across(function) is None
    wide = Graph()
    x = wide.input((1, 8, 4, 16))
    _, total = function_of(wide, wide.reduce("reduce_sum", wide.op("cast", [x], (1, 8, 4, 16), "i32"), 1))
    assert stage_across(total) is None


def chain(width: int, times: int = 0) -> tuple[Stream, ir.Module]:
    """Two convolutions with a depthwise one of stride 2 in between, or one that enlarges the image so many times, as a
    stream and as one function."""
    whole, stages = Graph(), list[Stage]()
    y = whole.input((1, 9, width, 16))
    depthwise = RNG.integers(-128, 128, (3, 3, 16, 1)).astype(np.int8)
    weights = RNG.integers(-128, 128, (16, 3, 3, 16)).astype(np.int8)
    bias = RNG.integers(-4000, 4000, 16)

    def add(graph: Graph, x: ir.Value, number: int) -> ir.Value:
        if number == 1 and times:
            scale, offset, border = (2 * times, 2, 2 * times, 2), 1 - times, times - 1
            wide = graph.resize(x, "BILINEAR", scale, (offset, offset), (border, border))
            return graph.requantize(wide, "i8", 1 / (4 * times * times))
        if number == 1:
            wide = graph.depthwise_conv2d(x, depthwise, bias, pad=(1, 1, 1, 0), stride=(2, 2), input_zero=5)
        else:
            wide = graph.conv2d(x, weights, bias, pad=(1, 1, 1, 1), input_zero=5)
        return graph.requantize(wide, "i8", 1e-3)

    for number in range(3):
        graph = Graph()
        x = graph.input(shape_of(y))
        _, function = function_of(graph, add(graph, x, number))
        stage = stage_of(function)
        assert stage is not None
        stages.append(stage)
        y = add(whole, y, number)
    reads = (("x",), ("a",), ("b",))
    return Stream(tuple(stages), reads, ("a", "b", "y"), ("x",), ("y",)), whole.module(y)


@pytest.mark.parametrize(("width", "parts", "times"), [(16, 2, 0), (18, 3, 0), (9, 2, 2), (7, 3, 3)])
def test_parts_side_by_side_make_the_columns_of_the_whole(width, parts, times):
    stream, module = chain(width, times)
    cut = side_by_side(stream, parts)
    assert cut is not None
    image = RNG.integers(-128, 128, (1, 9, width, 16)).astype(np.int8)
    (whole,) = evaluate(module, [image])
    columns, rows = dict[str, np.ndarray](), {"x": image.reshape(9, -1)}
    found = np.zeros_like(whole.reshape(whole.shape[1], -1))
    for stage, names, made in zip(cut.stages, cut.reads, cut.writes, strict=True):
        (name,), (argument,) = names, stage.arguments
        if not stage.module:
            columns[made] = rows[name][:, argument.offset :][:, : argument.bytes].view(np.int8)
            continue
        read = columns[name].reshape(1, argument.height, -1, 16)
        assert argument.bytes == read.shape[2] * 16
        (result,) = evaluate(parse(stage.module), [read])
        columns[made] = result
        if made == "y":
            found[:, stage.offset :][:, : stage.bytes] = result.reshape(stage.height, -1)
    np.testing.assert_array_equal(found.reshape(whole.shape), whole)


def test_an_image_narrower_than_its_parts_is_not_cut():
    stream, _ = chain(4)
    assert side_by_side(stream, 2) is not None
    assert side_by_side(stream, 3) is None


class Memory:
    """What lies where: a step-by-step execution of a plan in its layout that notices every row that is lost."""

    def __init__(self, plan: Plan, working: Sequence[int] = ()) -> None:
        self.plan, self.stream = plan, plan.stream
        self.lead = plan.leads.get((0, 0), 1 << 16)
        self.whole = {
            self.lead + read.step * row + read.offset: ("x", row)
            for _, read in self.stream.readers("x")
            for row in range(read.height)
        }
        self.done = [0] * len(self.stream.stages)
        self.working = [*working, *[0] * len(self.stream.stages)][: len(self.stream.stages)]
        self.layout = lay_out(plan, self.working)
        assert least_bytes(plan, self.working) <= self.layout.size
        self.scratch: dict[int, tuple[str, int | str]] = {}
        self.first = {name: -window.above for name, window in plan.windows.items()}
        for name, window in plan.windows.items():
            place = self.layout.windows[name]
            to = place.kept_at if window.first else place.at
            self.put(to, [(name, "padding")] * window.above)

    def put(self, at: int, rows: Sequence[tuple[str, int | str]]) -> None:
        assert at >= 0 and at + 16 * len(rows) <= self.layout.size
        self.scratch.update({at + 16 * number: row for number, row in enumerate(rows)})

    def address(self, name: str, row: int) -> int:
        offset = row - self.first[name]
        assert 0 <= offset < self.plan.windows[name].rows
        return self.layout.windows[name].at + 16 * offset

    def move(self, source: int, to: int, rows: int) -> None:
        assert rows >= 0 and (to <= source or source + 16 * rows <= to)
        self.put(to, [self.scratch[source + 16 * row] for row in range(rows)])

    def read(self, number: int, made: int) -> None:
        stage = self.stream.stages[number]
        for name, argument in zip(self.stream.reads[number], stage.arguments, strict=True):
            assert argument.rows is not None
            first = argument.rows.first(self.done[number])
            for row in range(first, first + argument.rows.count(made)):
                if name == "x":
                    assert self.whole[self.lead + argument.step * row + argument.offset] == ("x", row)
                else:
                    inside = 0 <= row < argument.height
                    assert self.scratch[self.address(name, row)] == (name, row if inside else "padding")

    def write(self, number: int, made: int) -> None:
        name = self.stream.writes[number]
        for row in range(self.done[number], self.done[number] + made):
            if name in self.first:
                self.put(self.address(name, row), [(name, row)])
            else:
                stage = self.stream.stages[number]
                self.whole[stage.step * row + stage.offset] = (name, row)
        self.done[number] += made

    def keep(self, name: str) -> None:
        """Move what is still needed of a window to where it is kept."""
        window, number = self.plan.windows[name], self.stream.writes.index(name)
        low = min(self.done[number], *(rows.first(self.done[reader]) for reader, rows in window.readers))
        rows = self.done[number] - low
        self.move(self.layout.windows[name].at + 16 * (low - self.first[name]), self.layout.windows[name].kept_at, rows)
        self.first[name] = low

    def restore(self, number: int) -> None:
        name = self.stream.writes[number]
        if name in self.first and self.plan.is_eager:
            place = self.layout.windows[name]
            self.move(place.kept_at, place.at, self.done[number] - self.first[name])

    def step(self, ends: Sequence[int]) -> None:
        for number, end in enumerate(ends):
            name, height = self.stream.writes[number], self.stream.stages[number].height
            window = self.plan.windows.get(name)
            below = window.below if window else 0
            if window and not self.plan.is_eager:
                if end + (below if end == height else 0) - self.first[name] > window.rows:
                    self.keep(name)
            elif number > 0:
                self.restore(number)
            while self.done[number] < end:
                unit = self.plan.units[number]
                made = unit if self.done[number] + unit <= end else self.stream.stages[number].together
                self.read(number, made)
                self.put(self.layout.working[number], [("working", number)] * (self.working[number] // 16))
                self.write(number, made)
            if window and self.done[number] == height and below:
                self.put(self.address(name, height), [(name, "padding")] * below)
            going_on = self.plan.is_eager and ends[-1] < self.stream.stages[-1].height
            for read in self.plan.windows.values() if going_on else ():
                if read.last == number:
                    self.keep(self.stream.writes[read.first])
        if ends[-1] < self.stream.stages[-1].height:
            self.restore(0)

    def move_on(self) -> None:
        """Number all rows from the next window's first; what it is fed is of its own."""
        for number, unit in enumerate(self.plan.units):
            name = self.stream.writes[number]
            self.done[number] -= unit
            if name in self.first:
                self.first[name] -= unit
                moved = {at: row for at, (made, row) in self.scratch.items() if made == name and isinstance(row, int)}
                self.scratch.update({at: (name, row - unit) for at, row in moved.items()})

    def run(self) -> None:
        for step in range(self.plan.steps):
            self.step(self.plan.ends(step))
        last = self.stream.writes[-1]
        for stage, name in zip(self.stream.stages, self.stream.writes, strict=True):
            if name == last:
                made = [self.whole[stage.step * row + stage.offset] for row in range(stage.height)]
                assert made == [(last, row) for row in range(stage.height)]


@settings(max_examples=150, deadline=None)
@given(plans(), st.lists(st.sampled_from([0, 16, 80])))
def test_no_row_is_lost_while_somebody_needs_it(plan, working):
    Memory(plan, working).run()


@settings(max_examples=100, deadline=None)
@given(sliding_plans(), st.integers(1, 6), st.lists(st.sampled_from([0, 16, 80])))
def test_a_window_that_moves_on_finds_every_row_that_it_needs(plan, hops, working):
    memory = Memory(plan, working)
    memory.run()
    ends = plan.ends(plan.steps - 1)
    for _ in range(hops):
        memory.move_on()
        memory.step(ends)
    assert memory.done == ends


def test_slices_of_rows_are_read_where_they_lie():
    stages = (
        Stage(b"conv", (Argument(RowMap(reach=3), 10, 16),), 8, 16),
        Stage(b"", (Argument(RowMap(before=-2), 10, 16),), 8, 16),
        Stage(b"add", (Argument(RowMap(), 8, 16), Argument(RowMap(), 8, 16)), 8, 16),
        Stage(b"", (Argument(RowMap(before=-7), 8, 16),), 1, 16),
    )
    reads = (("x",), ("x",), ("a", "b"), ("c",))
    stream = Stream(stages, reads, ("a", "b", "c", "y"), ("x",), ("y",), "x", True).keeping_last_rows()
    assert (stream.kept, stream.writes) == (1, ("a", "b", "y"))
    without = stream.without_slices()
    assert without.reads == (("x",), ("a", "x"))
    assert without.stages[1].arguments[1] == Argument(RowMap(before=-2), 10, 16)


def test_a_sequence_runs_down_as_rows():
    graph = Graph()
    x = graph.input((1, 1, 9, 16))
    y = convolution(graph, x, (1, 3), pad=(0, 0, 0, 0), stride=(1, 2), dilation=(1, 1))
    module, function = function_of(graph, y)
    sequence = RNG.integers(-128, 128, (1, 1, 9, 16)).astype(np.int8)
    (whole,) = evaluate(module, [sequence])
    stage = stage_of(function)
    assert stage is not None
    assert (stage.arguments, stage.height, stage.bytes) == ((Argument(RowMap(2, 0, 3), 9, 16, padding=249),), 4, 16)
    (part,) = evaluate(parse(strip(stage, 2)), [sequence.reshape(1, 9, 1, 16)[:, 2:7]])
    np.testing.assert_array_equal(part.reshape(2, 16), whole.reshape(4, 16)[1:3])


@settings(max_examples=50, deadline=None)
@given(plans())
def test_every_row_is_made_once(plan):
    ends = plan.ends(plan.steps - 1)
    for counts, end in zip(plan.calls, ends, strict=True):
        assert sum(rows * calls for rows, calls in counts.items()) == end
