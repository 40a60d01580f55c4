import math

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.reference import evaluate
from tosaic.passes import first_difference, random_inputs
from tosaic.passes.invariants import check_placed
from tosaic.passes.place.place import HOP_COST, divide, refuse
from tosaic.passes.place.verdicts import Verdict, everything_on_cpu
from tosaic.support.attributes import int_of, ints_of
from tosaic.support.errors import PassError
from tosaic.support.functions import body_of, callee_of, computing_ops, functions_on, note_states
from tosaic.support.mlir import copy_of, element_type, functions, ir, parse, shape_of, walk
from tosaic.support.values import users

ONES = np.ones((8, 3, 3, 8), np.int8)


def conv(graph: Graph, x: ir.Value) -> ir.Value:
    """conv2d + rescale to i8."""
    y = graph.conv2d(x, ONES, np.arange(8, dtype=np.int32), pad=(1, 1, 1, 1))
    return graph.requantize(y, "i8", scale=0.01)


def add(graph: Graph, a: ir.Value, b: ir.Value) -> ir.Value:
    """rescale + rescale + add + rescale."""
    wide = [graph.requantize(value, "i32", scale=1000.0) for value in (a, b)]
    return graph.requantize(graph.binary("add", *wide), "i8", scale=0.0005)


def place(module: ir.Module, verdict: Verdict = everything_on_cpu, hop_cost: int = HOP_COST) -> ir.Module:
    """A placed copy of `module`, which holds to the phase's invariant."""
    copy = copy_of(module)
    divide(copy, verdict, hop_cost)
    check_placed(copy)
    assert copy.operation.verify()
    return copy


def refusing(*names: str):
    """A verdict that keeps these ops off the NPU."""
    return lambda op: f"no {op.name}" if op.name.removeprefix("tosa.") in names else None


def contents(module: ir.Module) -> dict[str, str]:
    """Processor and ops, without constants, of every function but main, by name."""
    found = {}
    for name, function in functions(module).items():
        if name != "main":
            ops = [op.name.removeprefix("tosa.") for op in walk(function)
                   if not op.name.startswith(("tosa.const", "func."))]  # fmt: skip
            processor = ir.StringAttr(function.attributes["tosaic.processor"]).value
            found[name] = f"{processor}: {' '.join(ops)}"
    return found


def same(before: ir.Module, after: ir.Module) -> bool:
    inputs = random_inputs(before, 0)
    return first_difference(evaluate(before, inputs), evaluate(after, inputs)) == ""


def residual() -> ir.Module:
    graph = Graph()
    x = graph.input((1, 8, 8, 8))
    y = conv(graph, x)
    return graph.module(add(graph, conv(graph, y), y))


def test_without_an_npu_every_kernel_has_one_anchor():
    module = residual()
    placed = place(module)
    assert list(contents(placed).values()) == [
        "cpu: conv2d rescale",
        "cpu: conv2d rescale",
        "cpu: rescale rescale add rescale",
    ]
    assert "tosaic.reason" not in str(placed)
    assert same(module, placed)


def test_what_members_of_one_kernel_alone_read_joins_it():
    graph = Graph()
    x = graph.input((1, 8), "i32")
    zeros = graph.unary("clz", x)
    more = graph.binary("add", zeros, graph.const([[1]], "i32"))
    module = graph.module(graph.binary("maximum", more, graph.binary("bitwise_xor", zeros, x)))
    placed = place(module)
    assert list(contents(placed).values()) == ["cpu: clz add bitwise_xor maximum"]
    assert same(module, placed)


def test_kernels_widen_themselves_what_several_read():
    """What only takes a zero point away, and is read by pointwise kernels and sums alone; a rescale by another number
    is computed once."""
    graph = Graph()
    x = graph.input((1, 8))
    plain, scaled = graph.rescale(x, "i32", 1 << 30, 30, input_zero=3), graph.requantize(x, "i32", scale=3.3)
    results = [graph.binary("add", plain, graph.const([[n]], "i32")) for n in (1, 2)]
    results += [graph.op("reduce_sum", [plain], (1, 1), "i32", axis=1)]
    results += [graph.binary("maximum", scaled, graph.const([[n]], "i32")) for n in (1, 2)]
    module = graph.module(*results)
    placed = place(module)
    assert sorted(contents(placed).values()) == [
        "cpu: maximum", "cpu: maximum", "cpu: rescale", "cpu: rescale add", "cpu: rescale add",
        "cpu: rescale reduce_sum",
    ]  # fmt: skip
    assert same(module, placed)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (everything_on_cpu, ["cpu: tile gather", "cpu: tile scatter", "cpu: tile scatter"]),
        (refusing("tile", "gather"), ["cpu: tile", "cpu: tile gather", "npu: scatter scatter"]),
    ],
    ids=["core", "NPU"],
)
def test_kernels_repeat_the_indices_of_all_batches_themselves(verdict, expected):
    graph = Graph()
    repeated = graph.tile(graph.input((1, 1), "i32"), (4, 1))
    states, rows = ([graph.input((4, places, 2)) for _ in range(2)] for places in (8, 1))
    written = [graph.op("scatter", [states[n], repeated, rows[n]], (4, 8, 2), "i8") for n in range(2)]
    read = graph.op("gather", [written[0], repeated], (4, 1, 2), "i8")
    placed = place(graph.module(*written, read), verdict, hop_cost=0)
    assert sorted(contents(placed).values()) == expected


def test_other_tiles_of_indices_are_kernels():
    """Two indices of a row, repeated, name four rows."""
    graph = Graph()
    repeated = graph.tile(graph.input((1, 2), "i32"), (1, 2))
    placed = place(graph.module(graph.op("gather", [graph.input((1, 8, 2)), repeated], (1, 4, 2), "i8")))
    assert list(contents(placed).values()) == ["cpu: tile", "cpu: gather"]


@pytest.mark.parametrize(
    ("shape", "begin", "joined"),
    [
        ((1, 5, 16), 1, True),  # frames of a vector move up
        ((1, 5, 3), 1, False),  # frames of less
        ((2, 5, 16), 1, False),  # frames of two
        ((1, 5, 16), 0, False),  # nothing moves
        ((1, 9, 3), 2, True),  # what is cut out of something larger
    ],
)
def test_a_cut_joins_what_it_is_put_into_where_both_may_lie_in_one_place(shape, begin, joined):
    graph = Graph()
    part = graph.slice(graph.input(shape), (0, begin, 0), (shape[0], 4, shape[2]))
    module = graph.module(graph.concat([part, graph.input((shape[0], 1, shape[2]))], 1))
    placed = place(module)
    assert list(contents(placed).values()) == (["cpu: slice concat"] if joined else ["cpu: slice", "cpu: concat"])
    assert same(module, placed)


def test_states_change_when_all_have_read_them():
    graph = Graph()
    x, past = graph.input((1, 1, 16)), graph.input((1, 4, 16))
    moved = graph.concat([graph.slice(past, (0, 1, 0), (1, 3, 16)), x], 1)
    first = graph.unary("reverse", graph.reshape(past, (4, 16)), axis=1)
    module = graph.module(first, moved)
    for states, order in ((0, ["cpu_0_concat", "cpu_1_reverse"]), (1, ["cpu_1_reverse", "cpu_0_concat"])):
        note_states(module, states)
        placed = place(module)
        calls = [callee_of(op) for op in computing_ops(functions(placed)["main"]) if op.name == "func.call"]
        assert calls == order


def test_what_is_a_result_too_is_widened_once():
    graph = Graph()
    wide = graph.rescale(graph.input((1, 8)), "i32", 1 << 30, 30, input_zero=3)
    sums = [graph.binary("add", wide, graph.const([[n]], "i32")) for n in (1, 2)]
    returned = place(graph.module(wide, *sums))
    assert sorted(contents(returned).values()) == ["cpu: add", "cpu: add", "cpu: rescale"]


def test_regions_of_the_npu_widen_themselves_what_another_reads_too():
    """An int8 tensor goes from region to region, which each widen it; what is narrower than before is computed once."""
    graph = Graph()
    x = graph.input((1, 8, 8, 8))
    wide = graph.rescale(x, "i32", 1 << 30, 20)
    narrow = graph.rescale(graph.input((1, 8, 8, 8), "i32"), "i16", 1 << 30, 40)
    first = graph.requantize(graph.binary("add", wide, graph.rescale(narrow, "i32", 1 << 30, 30)), "i8", 1e-6)
    between = graph.clamp(first, -9, 9)
    more = graph.binary("add", graph.rescale(between, "i32", 1 << 30, 20), wide)
    second = graph.binary("add", more, graph.rescale(narrow, "i32", 1 << 30, 29))
    module = graph.module(graph.requantize(second, "i8", 1e-6))
    placed = place(module, refusing("clamp"), hop_cost=1)
    assert same(module, placed)
    regions = functions_on("npu", placed)
    read = [[str(element_type(argument)) for argument in body_of(one).arguments] for one in regions.values()]
    assert read == [["i8", "i32"], ["i8", "i8", "i16"]]
    ops = [[op for op in walk(one) if "tosaic.op" in op.attributes] for one in regions.values()]
    first_numbers, second_numbers = ({int_of(op, "tosaic.op") for op in one} for one in ops)
    assert len(first_numbers & second_numbers) == 1


def test_each_reader_on_the_npu_widens_a_constant_itself():
    graph = Graph()
    least = graph.rescale(graph.const(np.full((1, 1, 1, 1), -128), "i8"), "i32", 1 << 30, 30)
    narrow = []
    for _ in range(3):
        wide = graph.rescale(graph.input((1, 8, 8, 8)), "i32", 1 << 30, 30)
        narrow.append(graph.rescale(graph.binary("maximum", wide, least), "i8", 1 << 30, 30))
    module = graph.module(*narrow)
    placed = place(module, refusing(), hop_cost=1)
    assert same(module, placed)
    (region,) = functions_on("npu", placed).values()
    widened = [op for op in walk(region) if op.name == "tosa.rescale" and shape_of(op.results[0]) == (1, 1, 1, 1)]
    assert [len(users(op.results[0])) for op in widened] == [1, 1, 1]


def test_on_the_cpu_a_rescale_of_two_roundings_is_two_of_one():
    text = str(residual()).replace("SINGLE_ROUND", "DOUBLE_ROUND")
    module = parse(text)
    before = [op.name for op in walk(functions(module)["main"])]
    placed = place(module, refusing("add"), hop_cost=0)
    on_npu, on_cpu = (list(map(str, functions_on(name, placed).values())) for name in ("npu", "cpu"))
    assert any("DOUBLE_ROUND" in one for one in on_npu)
    assert on_cpu and not any("DOUBLE_ROUND" in one for one in on_cpu)
    assert all("tosaic.reason" in line for one in on_cpu for line in one.splitlines() if "arithmetic_right" in line)
    assert same(module, placed)
    numbers = [int_of(op, "tosaic.op") for op in walk(placed) if "tosaic.op" in op.attributes]
    refuse(module, dict.fromkeys(numbers[:1], "not this one"))
    assert [op.name for op in walk(functions(module)["main"])] == before
    assert [op.name for op in walk(functions(module)["main"]) if "tosaic.reason" in op.attributes] == ["tosa.conv2d"]


def test_a_result_that_becomes_a_float_is_one():
    """Kernels of integers write none, and floats behind it are one kernel with it."""
    graph = Graph()
    y = graph.conv2d(graph.input((1, 8, 8, 8)), ONES, np.arange(8, dtype=np.int32), pad=(1, 1, 1, 1))
    y = graph.unary("cast", graph.requantize(y, "i32", scale=0.5), "f32")
    module = graph.module(graph.unary("abs", y))
    placed = place(module)
    assert list(contents(placed).values()) == ["cpu: conv2d rescale", "cpu: cast abs"]
    assert same(module, placed)


def test_a_result_that_is_rescaled_again_is_one():
    graph = Graph()
    y = graph.conv2d(graph.input((1, 8, 8, 8)), ONES, np.arange(8, dtype=np.int32), pad=(1, 1, 1, 1))
    wide = graph.requantize(graph.requantize(y, "i32", scale=0.5), "i16", scale=0.5)
    module = graph.module(graph.requantize(graph.clamp(wide, 0, 1000), "i8", scale=0.1))
    placed = place(module)
    assert list(contents(placed).values()) == ["cpu: conv2d rescale rescale clamp", "cpu: rescale"]
    assert same(module, placed)


def test_moves_are_kernels_and_reshapes_are_aliases():
    graph = Graph()
    x = graph.input((1, 4, 4, 8))
    y = graph.reshape(graph.clamp(graph.transpose(x, (0, 2, 1, 3)), -5, 5), (16, 8))
    module = graph.module(graph.clamp(y, -3, 3))
    placed = place(module)
    assert list(contents(placed).values()) == ["cpu: transpose", "cpu: clamp", "cpu: clamp"]
    assert [op.name for op in walk(functions(placed)["main"]) if op.name == "tosa.reshape"] == ["tosa.reshape"]
    assert same(module, placed)


def test_all_on_the_npu_is_one_region_with_constants_inside():
    module = residual()
    placed = place(module, lambda op: None)
    assert list(contents(placed)) == ["npu_0"]
    assert [op.name for op in walk(functions(placed)["main"])] == ["func.call", "func.return"]
    assert same(module, placed)


def test_regions_are_few_and_convex():
    """Two branches with a refused op on one of them: what needs its result comes after, all else before."""
    graph = Graph()
    x = graph.input((1, 8, 8, 8))
    left = conv(graph, graph.unary("identity", conv(graph, x)))
    right = conv(graph, conv(graph, x))
    module = graph.module(add(graph, left, right))
    placed = place(module, refusing("identity"))
    assert contents(placed) == {
        "npu_0": "npu: conv2d rescale conv2d rescale conv2d rescale",
        "cpu_0_identity": "cpu: identity",
        "npu_1": "npu: conv2d rescale rescale rescale add rescale",
    }
    assert same(module, placed)


def test_reasons_stand_on_the_ops():
    graph = Graph()
    x = graph.input((1, 8, 8, 8))
    a, b = (graph.requantize(value, "i32", scale=1.0) for value in (conv(graph, x), x))
    module = graph.module(graph.binary("greater", a, b, "i1"))
    placed = place(module, refusing("greater"))
    text = str(placed)
    assert list(contents(placed).values()) == ["npu: conv2d rescale", "cpu: rescale rescale greater"]
    assert 'tosaic.reason = "no tosa.greater"' in text
    assert text.count('tosaic.reason = "it only widens what the CPU reads"') == 2
    assert same(module, placed)


def test_a_region_not_worth_a_hop_stays():
    graph = Graph()
    module = graph.module(graph.clamp(graph.input((1, 4, 4, 8)), -5, 5))
    assert list(contents(place(module, lambda op: None)).values()) == ["cpu: clamp"]
    assert "not worth a hop to the NPU (128 operations" in str(place(module, lambda op: None))
    assert list(contents(place(module, lambda op: None, hop_cost=0)).values()) == ["npu: clamp"]


def test_a_refusal_is_taken_back_by_number():
    module = residual()
    before = str(module)
    first = place(module, lambda op: None)
    number = next(
        ir.IntegerAttr(op.attributes["tosaic.op"]).value
        for op in walk(functions(first)["npu_0"])
        if op.name == "tosa.add"
    )
    assert str(module) == before
    refuse(module, {number: "Vela refused it"})
    second = place(module, lambda op: None)
    assert list(contents(second).values()) == ["npu: conv2d rescale conv2d rescale", "cpu: rescale rescale add rescale"]
    assert 'tosaic.reason = "Vela refused it"' in str(second)
    assert same(module, second)


def test_results_that_are_arguments_constants_or_shared():
    graph = Graph()
    x = graph.input((2, 8))
    y = graph.clamp(x, -5, 5)
    module = graph.module(x, y, graph.const(np.ones((2, 2)), "i8"), y)
    assert same(module, place(module))


def test_what_is_left_in_main_is_named():
    with pytest.raises(PassError, match=r"`tosa.clamp` is left in main"):
        check_placed(
            parse("""func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {
          %0 = tosa.clamp %x {min_val = -5 : i8, max_val = 5 : i8} : (tensor<4xi8>) -> tensor<4xi8>
          return %0 : tensor<4xi8> }""")
        )


def alternating(refusals: int, size: int) -> ir.Module:
    """conv, identity, conv, identity ... conv on size x size images."""
    graph = Graph()
    x = conv(graph, graph.input((1, size, size, 8)))
    for _ in range(refusals):
        x = conv(graph, graph.unary("identity", x))
    return graph.module(x)


def test_small_ops_between_refused_ones_do_not_go_back_and_forth():
    module = alternating(4, size=2)
    placed = place(module, refusing("identity"))
    assert all(text.startswith("cpu") for text in contents(placed).values())
    assert str(placed).count("not worth a hop to the NPU (2336 operations, a hop costs 4096)") == 2 * 5
    assert same(module, placed)


def test_large_ops_between_refused_ones_hop():
    processors = [
        text.partition(":")[0] for text in contents(place(alternating(2, size=8), refusing("identity"))).values()
    ]
    assert processors == ["npu", "cpu", "npu", "cpu", "npu"]


def test_an_op_that_can_wait_is_no_reason_for_a_region():
    """Two branches; on the one a tiny NPU op stands between refused ops, on the other nothing is in a hurry."""
    graph = Graph()
    x = graph.input((1, 8, 8, 8))
    left = graph.unary("identity", x)
    left = graph.unary("identity", graph.clamp(left, -3, 3))
    left = conv(graph, left)
    right = conv(graph, graph.unary("identity", x))
    module = graph.module(add(graph, left, right), conv(graph, x))
    placed = place(module, refusing("identity"))
    assert [name for name in contents(placed) if name.startswith("npu")] == ["npu_0"]
    assert contents(placed)["npu_0"].count("conv2d") == 3
    assert same(module, placed)


def test_a_region_gives_what_the_cpu_reads_and_what_the_model_returns():
    """A value inside the region goes to the CPU, to the caller, and on inside the region."""
    graph = Graph()
    x, y = graph.input((1, 8, 8, 8)), graph.input((1, 8, 8, 8))
    shared = conv(graph, add(graph, x, y))
    module = graph.module(shared, graph.unary("identity", shared), add(graph, conv(graph, shared), y))
    placed = place(module, refusing("identity"))
    region = functions(placed)["npu_0"]
    kind = ir.FunctionType(ir.TypeAttr(region.attributes["function_type"]).value)
    assert (len(kind.inputs), len(kind.results)) == (2, 2)
    assert sorted(contents(placed)) == ["cpu_0_identity", "npu_0"]
    assert same(module, placed)


def test_both_processors_read_a_value_of_the_cpu():
    graph = Graph()
    x = graph.unary("identity", graph.input((1, 8, 8, 8)))
    module = graph.module(conv(graph, x), graph.unary("reverse", x, axis=1), x)
    placed = place(module, refusing("identity", "reverse"))
    assert sorted(contents(placed).values()) == ["cpu: identity", "cpu: reverse", "npu: conv2d rescale"]
    assert same(module, placed)


@pytest.mark.parametrize("verdict", [everything_on_cpu, lambda op: None], ids=["cpu", "npu"])
def test_a_model_that_only_passes_its_input_on(verdict):
    graph = Graph()
    x = graph.input((2, 8))
    module = graph.module(x, graph.reshape(x, (16,)), x)
    placed = place(module, verdict)
    assert contents(placed) == {}
    assert same(module, placed)


def test_a_sum_on_the_cpu_of_what_the_npu_widens():
    graph = Graph()
    wide = graph.rescale(conv(graph, graph.input((1, 8, 8, 8))), "i32", 1 << 30, 20)
    total = graph.reduce("reduce_sum", wide, 3)
    module = graph.module(total, graph.requantize(graph.binary("add", wide, wide), "i8", 1e-6))
    kernels = contents(place(module, refusing("reduce_sum"), hop_cost=1))
    assert kernels["cpu_0_reduce_sum"] == "cpu: reduce_sum"


@pytest.mark.parametrize("perms, element, joined", [
    ((0, 2, 1), "i8", True), ((0, 2, 1), "i16", True), ((2, 1, 0), "i8", False),
])  # fmt: skip
def test_a_product_turns_its_second_operand_itself(perms, element, joined):
    graph = Graph()
    keys = graph.transpose(graph.input((4, 4, 4), element), perms)
    y = graph.requantize(graph.matmul(graph.input((4, 2, 4), element), keys), element, 0.01)
    module = graph.module(y)
    placed = place(module)
    assert same(module, placed)
    first = next(iter(contents(placed).values()))
    assert first == ("cpu: transpose matmul rescale" if joined else "cpu: transpose")
    names = list(functions_on("cpu", placed))
    assert names == (["cpu_0_matmul"] if joined else ["cpu_0_transpose", "cpu_1_matmul"])


@pytest.mark.parametrize("perms, joined", [((0, 1, 3, 2), True), ((0, 2, 3, 1), True), ((0, 3, 2, 1), False)])
def test_a_product_turns_what_is_reshaped_before_it(perms, joined):
    graph = Graph()
    turned = graph.transpose(graph.input((2, 3, 3, 3)), perms)
    keys = graph.op("reshape", [turned, graph.shape((6, 3, 3))], (6, 3, 3), "i8")
    module = graph.module(graph.requantize(graph.matmul(graph.input((6, 2, 3)), keys), "i8", 0.01))
    placed = place(module)
    assert same(module, placed)
    assert ("cpu: transpose matmul rescale" in contents(placed).values()) == joined


@pytest.mark.parametrize("shape, perms, first", [
    ((1, 5, 2, 3), (0, 2, 3, 1), (0, 2, 1, 3)), ((5, 2, 1, 3), (2, 1, 3, 0), (2, 1, 0, 3)),
    ((1, 1, 5, 3), (0, 1, 3, 2), None), ((1, 5, 1, 3), (0, 2, 3, 1), None),
    ((5, 2, 3), (1, 2, 0), (1, 0, 2)),
])  # fmt: skip
def test_whole_rows_are_copied_for_a_product_that_turns_them(shape, perms, first):
    graph = Graph()
    turned = graph.transpose(graph.input(shape), perms)
    heads = math.prod(shape[axis] for axis in perms[:-2])
    keys = graph.op("reshape", [turned, graph.shape((heads, 3, 5))], (heads, 3, 5), "i8") if len(perms) > 3 else turned
    module = graph.module(graph.requantize(graph.matmul(graph.input((heads, 4, 3)), keys), "i8", 0.01))
    placed = place(module)
    assert same(module, placed)
    *copies, product = functions_on("cpu", placed).values()
    copied = [ints_of(op, "perms") for function in copies for op in walk(function) if op.name == "tosa.transpose"]
    assert copied == ([first] if first else [])
    assert [ints_of(op, "perms") for op in walk(product) if op.name == "tosa.transpose"] == [(0, 2, 1)]


def test_a_turned_operand_stays_on_the_npu():
    graph = Graph()
    keys = graph.transpose(graph.clamp(graph.input((4, 4, 4)), -5, 5), (0, 2, 1))
    module = graph.module(graph.requantize(graph.matmul(graph.input((4, 2, 4)), keys), "i8", 0.01))
    placed = place(module, refusing("matmul", "rescale"), hop_cost=1)
    assert same(module, placed)
    assert list(contents(placed).values()) == ["npu: clamp transpose", "cpu: matmul rescale"]


def test_a_turned_operand_that_others_read_is_a_kernel():
    graph = Graph()
    keys = graph.transpose(graph.input((4, 4, 4)), (0, 2, 1))
    y = graph.requantize(graph.matmul(graph.input((4, 2, 4)), keys), "i8", 0.01)
    assert list(contents(place(graph.module(y, keys))).values()) == ["cpu: transpose", "cpu: matmul rescale"]
