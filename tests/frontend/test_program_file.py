"""A `.pt2` that could run its author's code, or leave its folder, is refused before anything of it is loaded."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._utils import _rebuild_tensor_v2
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from tosaic.frontend import Capture, quantize
from tosaic.frontend.canonical import canonical
from tosaic.frontend.program_file import read_program
from tosaic.support.errors import ModelError

GRAPH, EXAMPLES = "models/model.json", "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"


class Model(nn.Module):
    """Parameters, a buffer, a constant, a keyword and a nested result: f32[2, 4] -> {f32[2, 4], (f32[2, 2],)}."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"layer-1": nn.Linear(4, 4)})
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor, *, y: Tensor) -> dict[str, object]:
        with torch.no_grad():
            z = self.layers["layer-1"](x)
        return {"z": z + y + self.shift, "more": (torch.einsum("ij,kj->ik", x, z) + torch.arange(2),)}


class Harm:
    """What a pickle can be made to do: create a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


class Bloated:
    """A pickled tensor of 2^44 elements, of which two bytes are there."""

    def __reduce__(self):
        storage = torch.zeros(2, dtype=torch.uint8).untyped_storage()
        typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.uint8, _internal=True)
        return _rebuild_tensor_v2, (typed, 0, (2**44,), (1,), False, OrderedDict())


def nested_records(names: list[str], last: bytes) -> bytes:
    """A zip archive in which each record's data are all the records behind it."""
    body, entries = last, []
    for name in reversed(names):
        sizes = struct.pack("<LLLHH", zlib.crc32(body), len(body), len(body), len(name), 0)
        entries.append((name, sizes, len(body)))
        body = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 0, 0, 33) + sizes + name.encode() + body
    directory = b"".join(
        b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 0, 0, 33) + sizes + struct.pack("<HHHLL", 0, 0, 0, 0,
            len(body) - length - len(name) - 30) + name.encode()
        for name, sizes, length in entries
    )  # fmt: skip
    end = struct.pack("<HHHHLLH", 0, 0, len(names), len(names), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


class Saved:
    """A saved program, whose records a test changes."""

    def __init__(self, folder: Path) -> None:
        self.path, self.harm = folder / "model.pt2", folder / "harm"
        inputs = (torch.ones(2, 4),), {"y": torch.ones(2, 4)}
        torch.export.save(torch.export.export(Model(), *inputs), self.path)

    def records(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.path) as archive:
            return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}

    def write(self, records: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
        with zipfile.ZipFile(self.path, "w", compression) as archive:
            for name, data in records.items():
                archive.writestr(f"model/{name}", data)

    def put(self, name: str, data: bytes) -> None:
        self.write(self.records() | {name: data})

    def edit(self, record: str, change: Callable[[dict], object]) -> None:
        document = json.loads(self.records()[record])
        change(document)
        self.put(record, json.dumps(document).encode())

    def refused(self, why: str) -> None:
        with pytest.raises(ModelError) as error:
            read_program(self.path).module()
        assert error.value.what == f"{self.path} is not opened: it holds more than a program of ops and tensors"
        assert why in error.value.why
        assert not self.harm.exists()


@pytest.fixture
def saved(tmp_path):
    return Saved(tmp_path)


def pickled(value: object) -> bytes:
    written = io.BytesIO()
    torch.save(value, written)
    return written.getvalue()


def results(program: ExportedProgram) -> list[Tensor]:
    """Of the example inputs."""
    assert program.example_inputs
    inputs, options = program.example_inputs
    return tree_leaves(program.module()(*inputs, **options))


def nodes(program: dict) -> list[dict]:
    return program["graph_module"]["graph"]["nodes"]


def test_an_honest_program_is_the_one_that_was_saved(saved):
    got, expected = (results(program) for program in (read_program(saved.path), torch.export.load(saved.path)))
    assert len(got) == 2
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def test_a_quantized_program_is_the_one_that_was_saved(saved):
    """Convolutions have a scale for each channel, so that all four ops of Q/DQ are in it."""
    x = torch.randn(1, 2, 6, 6)
    program = canonical(torch.export.export(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()).eval(), (x,)))
    quantized = quantize(Capture("model", program, (x,), ((x,),)))
    torch.export.save(quantized, saved.path)
    assert torch.equal(read_program(saved.path).module()(x), quantized.module()(x))


def test_a_command_in_a_weight(saved):
    saved.put("data/weights/weight_0", pickled(Harm(saved.harm)))
    saved.edit(WEIGHTS, lambda config: next(iter(config["config"].values())).update(use_pickle=True))
    saved.refused("the pickle `data/weights/weight_0` names `posix.mkdir`")


def test_a_command_in_the_example_inputs(saved):
    saved.put(EXAMPLES, pickled(((Harm(saved.harm),), {})))
    saved.refused(f"the pickle `{EXAMPLES}` names `posix.mkdir`")


def test_an_old_pickle_in_the_example_inputs(saved):
    saved.put(EXAMPLES, pickle.dumps(Harm(saved.harm)))
    with pytest.raises(ModelError, match=r"cannot be read as a \.pt2 program"):
        read_program(saved.path)
    assert not saved.harm.exists()


@pytest.mark.parametrize("name", ["opaque_obj_0", "custom_obj_0"])
def test_an_object_among_the_constants(saved, name):
    saved.put(f"data/constants/{name}", pickle.dumps(Harm(saved.harm)))
    saved.refused(f"record `model/data/constants/{name}` is none of a program's")


def test_a_constant_that_is_a_record_elsewhere(saved):
    entry = {"path_name": "../sample_inputs/model.pt", "is_param": False, "use_pickle": True, "tensor_meta": None}
    saved.edit("data/constants/model_constants_config.json", lambda config: config["config"].update(more=entry))
    saved.refused("'../sample_inputs/model.pt' is no name")


def test_a_module_among_the_example_inputs(saved):
    saved.put(EXAMPLES, pickled(((nn.Linear(4, 4),), {})))
    saved.refused("names `torch.nn.modules.linear.Linear`")


def test_weights_in_the_legacy_format(saved):
    saved.put("data/weights/model.pt", pickled({"weight": Harm(saved.harm)}))
    saved.refused("record `model/data/weights/model.pt` is none of a program's")


def test_a_compiled_library(saved):
    saved.put("data/aotinductor/model/code.so", b"\x7fELF")
    saved.refused("record `model/data/aotinductor/model/code.so` is none of a program's")


@pytest.mark.parametrize("name", ["../../.bashrc", "/etc/cron.d/job", "extra/../../.bashrc", "extra/..", "a\\b"])
def test_a_name_that_leaves_the_archive(saved, name):
    saved.put(name, b"")
    saved.refused("is none of a program's")


def test_files_that_a_user_packed_are_not_read(saved):
    saved.put("extra/labels/one.txt", pickle.dumps(Harm(saved.harm)))
    assert read_program(saved.path).example_inputs
    assert not saved.harm.exists()


def test_a_symbolic_link(saved):
    with zipfile.ZipFile(saved.path, "a") as archive:
        link = zipfile.ZipInfo("model/extra/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    saved.refused("record `model/extra/link` is a symbolic link")


def test_a_record_that_stands_there_twice(saved):
    with zipfile.ZipFile(saved.path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(f"model/{GRAPH}", b"{}")
    saved.refused(f"there are two records `model/{GRAPH}`")


def test_a_bomb(saved):
    saved.write(saved.records() | {"data/weights/weight_0": bytes(2**24)}, zipfile.ZIP_DEFLATED)
    saved.refused("is compressed, which PyTorch never does")


def test_a_bomb_in_a_pickle(saved):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**24))
    saved.put(EXAMPLES, inner.getvalue())
    saved.refused(f"of `{EXAMPLES}` is compressed")


def test_a_tensor_of_more_elements_than_memory(saved):
    def grow(config: dict) -> None:
        next(iter(config["config"].values()))["tensor_meta"]["sizes"] = [{"as_int": 2**20}, {"as_int": 2**20}]

    saved.edit(WEIGHTS, grow)
    saved.refused("`data/weights/weight_0` claims more elements than it holds")


def test_a_pickled_tensor_of_more_elements_than_memory(saved):
    saved.put(EXAMPLES, pickled(((Bloated(),), {})))
    saved.refused(f"the pickle `{EXAMPLES}` holds more than tensors")


def test_a_pickle_of_more_than_tensors(saved):
    saved.put(EXAMPLES, pickled((({1, 2},), {})))
    saved.refused(f"the pickle `{EXAMPLES}` holds a `set`")


def test_records_that_lie_upon_each_other(saved):
    """Each of many holds all that follow: a small file that would be unpacked to a large one."""
    saved.path.write_bytes(
        nested_records([f"model/data/weights/weight_{number}" for number in range(100)], bytes(9000))
    )
    saved.refused("lie upon each other")


@pytest.mark.parametrize(
    "target",
    ["torch.os.mkdir", "_operator.methodcaller", "math.sqrt", "torch.ops.load_library", "torch.ops.aten.save.default",
     "torch.ops.aten.from_file.default", "torch.ops.profiler._record_function_enter.default", "#ext:op",
     "torch.ops.aten.__class__.__class__", "torch.ops.aten.__init__.__globals__", "torch.ops.aten._dir.append",
     "torch.ops.aten.add.__class__", "torch.ops.aten.add.overloads", "torch.ops.aten.no_op.default",
     "torch.ops.aten._nested_view_from_buffer.default", "torch.ops.aten._sparse_csr_tensor_unsafe.default",
     "torch.ops.aten._histogramdd_from_bin_cts.default", "_operator.pow"],
)  # fmt: skip
def test_a_call_of_what_is_no_op(saved, target):
    saved.edit(GRAPH, lambda program: nodes(program)[0].update(target=target))
    saved.refused(f"it calls `{target}`, which is no op")


def test_a_value_that_is_no_op(saved):
    def name(program: dict) -> None:
        nodes(program)[0]["inputs"][0]["arg"] = {"as_operator": "torch.ops.aten.__init__.__globals__"}

    saved.edit(GRAPH, name)
    saved.refused("it calls `torch.ops.aten.__init__.__globals__`, which is no op")


def test_a_text_times_a_number(saved):
    def multiply(program: dict) -> None:
        texts = [
            {"name": "a", "arg": {"as_string": "x"}, "kind": 1},
            {"name": "b", "arg": {"as_int": 2**50}, "kind": 1},
        ]
        nodes(program)[0].update(target="_operator.mul", inputs=texts)

    saved.edit(GRAPH, multiply)
    saved.refused("`_operator.mul` computes with something else than sizes")


def test_an_object_among_the_arguments(saved):
    custom = {"name": "x", "class_fqn": "x"}
    saved.edit(GRAPH, lambda program: program["graph_module"]["graph"].update(custom_obj_values={"x": custom}))
    saved.refused("it holds an object, and no tensor")


def test_code_in_a_name(saved):
    def rename(program: dict) -> None:
        nodes(program)[1]["name"] = f"x\n    __import__('os').mkdir('{saved.harm}')"

    saved.edit(GRAPH, rename)
    saved.refused("is no name")


@pytest.mark.parametrize("name", ["self.training", "torch.ops", "a+b", "x=1", "x y"])
def test_a_name_that_python_would_read_as_more(saved, name):
    saved.edit(GRAPH, lambda program: nodes(program)[1].update(name=name))
    saved.refused(f"{name!r} is no name")


def test_a_parameter_among_pythons_own_attributes(saved):
    saved.edit(WEIGHTS, lambda config: config["config"].update({"layers.__class__.x": None}))
    saved.refused("'layers.__class__.x' is no name")


def give_size(program: dict, expression: str, tensor: str | None = None) -> None:
    values = program["graph_module"]["graph"]["tensor_values"]
    first = next(iter(values.values()))
    if tensor:
        first = values[tensor] = json.loads(json.dumps(first))
    first["sizes"][0] = {"as_expr": {"expr_str": expression, "hint": None}}


# A tensor may have the name of a field, too.
@pytest.mark.parametrize("tensor", [None, "metadata", "as_string", "as_strings", "target", "in_spec", "config"])
def test_code_in_a_symbolic_size(saved, tensor):
    code = f"__import__('os').mkdir('{saved.harm}')"
    saved.edit(GRAPH, lambda program: give_size(program, code, tensor))
    saved.refused("is no size")


@pytest.mark.parametrize(
    "expression",
    ["Integer(1).__class__", "Pow(Integer(9), Integer(999999999))", "9**9**9", "eval('x')", "Add(*[1])", "[1]", "x",
     "lambda: 1", "Max('a b')", "Symbol('s0')(1)", "Integer(9999999999999999999)", "1 if 1 else 2", "f'{1}'",
     "Mul(" + "Integer(1), " * 2000 + "Integer(1))", "1" * 64 + "!", "s0.args", "Symbol('s0', cls=Add)('x')"],
)  # fmt: skip
def test_what_is_no_symbolic_size(saved, expression):
    saved.edit(GRAPH, lambda program: give_size(program, expression))
    with pytest.raises(ModelError, match=r"is not opened|cannot be read as a \.pt2 program"):
        read_program(saved.path)


@pytest.mark.parametrize("expression", ["(" * 100_000, "Add(" * 2000, "-" * 9_999 + "1", "Symbol('s0'" * 500])
def test_sizes_too_deep_to_read(saved, expression):
    saved.edit(GRAPH, lambda program: give_size(program, expression))
    with pytest.raises(ModelError, match=r"is not opened|cannot be read as a \.pt2 program"):
        read_program(saved.path)


def test_a_symbol_up_to_whose_number_torch_would_count(saved):
    limits = {"min_val": 0, "max_val": 1}
    saved.edit(GRAPH, lambda program: program["range_constraints"].update(u999999999999=limits))
    saved.refused("'u999999999999' is no symbol")


def test_sizes_that_are_symbols_are_read(saved):
    class Halves(nn.Module):
        def forward(self, target: Tensor) -> Tensor:
            torch._check(target.shape[0] > 3)
            return target[: target.shape[0] // 2].reshape(-1, target.shape[1] * 2) % 3

    auto = torch.export.Dim.AUTO
    program = torch.export.export(Halves(), (torch.ones(8, 4),), dynamic_shapes={"target": {0: auto, 1: auto}})
    torch.export.save(program, saved.path)
    x = torch.arange(60.0).reshape(12, 5)
    assert torch.equal(read_program(saved.path).module()(x), Halves()(x))


def test_code_in_a_guard_is_not_run(saved):
    saved.edit(GRAPH, lambda program: program.update(guards_code=[f"__import__('os').mkdir('{saved.harm}') or True"]))
    assert len(results(read_program(saved.path))) == 2
    assert not saved.harm.exists()


def test_a_module_to_import_in_the_type_of_the_result(saved):
    def nest(program: dict) -> None:
        context = {"default_factory_module": "antigravity", "default_factory_name": "fly", "dict_context": []}
        spec = {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []}
        program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, spec])

    saved.edit(GRAPH, nest)
    saved.refused("its inputs or outputs are in a `collections.defaultdict`")


def test_a_module_to_import_in_a_key_of_the_result(saved):
    def nest(program: dict) -> None:
        context = json.dumps([{"__enum__": True, "fqn": "antigravity:fly", "name": "x"}])
        spec = {"type": "builtins.dict", "context": context, "children_spec": []}
        program["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, spec])

    saved.edit(GRAPH, nest)
    saved.refused("are no names")


def test_a_keyword_that_python_would_read_as_more(saved):
    def name(program: dict) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = signature["in_spec"].replace('\\"y\\"', '\\"y-1\\"')

    saved.edit(GRAPH, name)
    saved.refused("the keywords")


class Infinite(nn.Module):
    """Numbers that JSON has none of."""

    def forward(self, x: Tensor) -> Tensor:
        low = torch.where(x > 0, x, float("-inf"))
        return torch.where(x < 9, low, float("inf")).nan_to_num(nan=float("nan"))


def test_numbers_may_be_infinite(tmp_path):
    x = torch.tensor([[-1.0, 2.0, 10.0]])
    program = torch.export.export(Infinite(), (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    assert torch.equal(read_program(tmp_path / "model.pt2").module()(x), program.module()(x))


@pytest.mark.parametrize(
    ("old", "new"),
    [('"name": "x"', '"name": "-Infinity"'), ('"as_float": "-Infinity"', '"as_float": "-inf"')],
    ids=["name", "number"],
)
def test_no_name_is_infinite_and_no_number_another_text(old, new, tmp_path):
    torch.export.save(torch.export.export(Infinite(), (torch.ones(1, 3),)), tmp_path / "model.pt2")
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    (graph,) = (name for name in records if name.endswith(GRAPH))
    assert old.encode() in records[graph]
    records[graph] = records[graph].replace(old.encode(), new.encode())
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    with pytest.raises(ModelError, match="is not opened"):
        read_program(tmp_path / "other.pt2")
