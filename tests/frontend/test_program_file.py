"""A `.pt2` that could run its author's code, or leave its folder, is refused before anything of it is loaded."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

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
    saved.refused("is compressed, which torch.export.save never does")


def test_a_bomb_in_a_pickle(saved):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**24))
    saved.put(EXAMPLES, inner.getvalue())
    saved.refused(f"`{EXAMPLES}` is compressed")


def test_a_tensor_of_more_elements_than_memory(saved):
    def grow(config: dict) -> None:
        next(iter(config["config"].values()))["tensor_meta"]["sizes"] = [{"as_int": 2**20}, {"as_int": 2**20}]

    saved.edit(WEIGHTS, grow)
    saved.refused("claims more than 2,147,483,648 elements")


@pytest.mark.parametrize(
    "target",
    ["torch.os.mkdir", "_operator.methodcaller", "math.sqrt", "torch.ops.load_library", "torch.ops.aten.save.default",
     "torch.ops.aten.from_file.default", "torch.ops.profiler._record_function_enter.default", "#ext:op"],
)  # fmt: skip
def test_a_call_of_what_is_no_op(saved, target):
    saved.edit(GRAPH, lambda program: nodes(program)[0].update(target=target))
    saved.refused(f"it calls `{target}`" if target != "#ext:op" else "is no name")


def test_code_in_a_name(saved):
    def rename(program: dict) -> None:
        nodes(program)[1]["name"] = f"x\n    __import__('os').mkdir('{saved.harm}')"

    saved.edit(GRAPH, rename)
    saved.refused("is no name")


def test_code_in_a_symbolic_size(saved):
    def size(program: dict) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        expression = {"expr_str": f"__import__('os').mkdir('{saved.harm}')", "hint": None}
        next(iter(values.values()))["sizes"][0] = {"as_expr": expression}

    saved.edit(GRAPH, size)
    saved.refused("is no name")


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
