"""Bad input: a clear message, exit code 1, no traceback, and no half-written output."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import NETS

from tosaic.builds.build import seal
from tosaic.builds.manifest import FORMAT
from tosaic.support.mlir import parse

NET, SMALL = f"{NETS}:net", f"{NETS}:small"


@pytest.fixture(scope="module")
def build(succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("build") / "small"
    succeed("compile", SMALL, "-o", folder)
    return folder


@pytest.fixture
def compile_refused(refused, tmp_path):
    """The message of a compilation that must fail and leave nothing where its output would be."""

    def run(*arguments: object) -> str:
        home = tmp_path / "outputs"
        home.mkdir()
        message = refused("compile", *arguments, "-o", home / "build")
        assert list(home.iterdir()) == []
        return message

    return run


def test_a_missing_pt2(compile_refused, tmp_path):
    assert f"there is no file {tmp_path / 'absent.pt2'}" in compile_refused(tmp_path / "absent.pt2")


def test_a_corrupt_pt2(compile_refused, tmp_path):
    corrupt = tmp_path / "corrupt.pt2"
    corrupt.write_bytes(b"PK\x03\x04" + bytes(200))
    message = compile_refused(corrupt)
    assert f"{corrupt} cannot be read as a .pt2 program" in message
    assert "torch.export.save" in message


def test_no_model_at_all(compile_refused):
    assert "give file.py:factory, zoo:NAME, or a .pt2, .onnx" in compile_refused("model.h5")


def test_an_unknown_model_of_the_zoo(compile_refused):
    assert "resnet8" in compile_refused("zoo:resnet9")


def test_a_missing_factory(compile_refused):
    message = compile_refused(f"{NETS}:nett")
    assert "has no function `nett`" in message and "net" in message
    assert "Tensor" not in message and "Net" not in message


def test_an_op_without_a_lowering(compile_refused):
    message = compile_refused(f"{NETS}:without_lowering")
    line = next(n for n, text in enumerate(NETS.read_text().splitlines(), 1) if "torch.linalg" in text)
    assert "no lowering for aten.linalg_det.default" in message
    assert f"nets.py:{line} aten.linalg_det.default" in message
    assert "frontend/lowerings" in message


def test_a_dynamic_shape(compile_refused, tmp_path):
    batch = torch.export.Dim("batch", min=1, max=8)
    layer = torch.nn.Linear(16, 4)
    program = torch.export.export(layer, (torch.randn(2, 16),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "dynamic.pt2")
    message = compile_refused(tmp_path / "dynamic.pt2")
    assert "dynamic" in message and "input" in message


def test_nan_in_the_weights(compile_refused):
    assert "the weight `second.weight` holds NaN or infinity" in compile_refused(f"{NETS}:nan_weight")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 3, 8, 8), np.float32), "calibration data for the input `x` is"),
        (np.full((4, 3, 12, 12), np.nan, np.float32), "calibration data for the input `x` holds NaN"),
    ],
)
def test_calibration_data_that_do_not_fit(compile_refused, tmp_path, array, words):
    np.savez(tmp_path / "cal.npz", x=array)
    assert words in compile_refused(NET, "--calibration", tmp_path / "cal.npz")


def test_missing_calibration_data(compile_refused, tmp_path):
    assert "there is no calibration file" in compile_refused(NET, "--calibration", tmp_path / "absent.npz")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--target", "corston-300", "there is no target `corston-300`\n  try: did you mean `corstone-300`?"),
        ("--target", "pdp11", "there is no target `pdp11`\n  try: one of cortex-m55"),
        ("--accelerator", "ethos-u55-127", "there is no accelerator `ethos-u55-127`\n  try: did you mean"),
    ],
)
def test_a_target_that_does_not_exist(compile_refused, option, value, words):
    assert words in compile_refused(NET, "--target", "corstone-300", option, value)


def test_a_target_file_that_is_none(compile_refused, tmp_path):
    (tmp_path / "target.toml").write_bytes(b'name = "\x8a"\n')
    assert f"`{tmp_path / 'target.toml'}` declares no target" in compile_refused(
        NET, "--target", tmp_path / "target.toml"
    )


def test_too_small_a_memory_says_who_uses_it(compile_refused):
    message = compile_refused(NET, "--arena-size", 1000)
    assert "the model needs more memory than `cortex-m55` has" in message
    assert "dtcm 1000 B" in message and "biggest users: " in message
    assert "at: nets.py:" in message


def test_a_misspelt_pass(refused, tmp_path):
    module = tmp_path / "module.mlir"
    module.write_text("module {}\n")
    message = refused("opt", module, "--pass-pipeline", "fuse-clmp")
    assert "there is no pass `fuse-clmp`" in message and "did you mean `fuse-clamp`?" in message


def test_damaged_records(compile_refused, tmp_path):
    records = tmp_path / "records.db"
    records.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    message = compile_refused(SMALL, "--records", records)
    assert f"the tuning database {records} is damaged" in message and "move the file away" in message


def test_records_of_another_program(compile_refused, tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE fruit (name TEXT)")
    assert "is not a tuning database" in compile_refused(SMALL, "--records", tmp_path / "other.db")


def test_an_output_folder_that_is_no_build(refused, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    message = refused("compile", SMALL, "-o", tmp_path)
    assert f"`{tmp_path}` exists and is no build" in message
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_failed_compile_leaves_the_old_build(refused, build):
    before = {path.name: path.stat().st_mtime_ns for path in build.iterdir()}
    refused("compile", f"{NETS}:nan_weight", "-o", build)
    assert {path.name: path.stat().st_mtime_ns for path in build.iterdir()} == before
    assert [path.name for path in build.parent.iterdir()] == [build.name]


@pytest.mark.parametrize("command", [("run", "--random", 1), ("verify",)])
def test_a_folder_without_a_manifest(refused, tmp_path, command):
    name, *rest = command
    message = refused(name, tmp_path, *rest)
    assert f"`{tmp_path}` holds no build" in message and "tosaic compile MODEL" in message


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 0}'])
def test_a_manifest_that_is_none(refused, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    assert "compile again" in refused("run", tmp_path, "--random", 1)


@pytest.mark.parametrize("missing", ["model.elf", "module.mlirbc", "placed.mlirbc", "float.pt2"])
def test_a_build_that_lost_a_file(refused, build, tmp_path, missing):
    folder = tmp_path / "build"
    shutil.copytree(build, folder)
    (folder / missing).unlink()
    command = ("verify", folder) if missing == "placed.mlirbc" else ("run", folder, "--random", 1)
    assert str(folder) in refused(*command)


@pytest.mark.parametrize(
    "file", ["manifest.json", "module.mlirbc", "placed.mlirbc", "float.pt2", "model.elf", "SHA256SUMS"]
)
def test_a_build_with_a_bit_flipped(refused, build, tmp_path, file):
    folder = tmp_path / "build"
    shutil.copytree(build, folder)
    data = bytearray((folder / file).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / file).write_bytes(data)
    message = refused("run", folder, "--random", 1)
    assert str(folder) in message and "compile again" in message


@pytest.mark.parametrize(
    "old, new, where",
    [
        ('"name": "x"', '"name": "../../x"', "$.firmware.inputs[0].name"),
        ('"machine": "mps3-an547"', '"machine": "mps3-an547,dumpdtb=/tmp/x"', "$.target.board.machine"),
        ('"dtype": "int8"', '"dtype": "iNt8"', "$.firmware.inputs[0].dtype"),
        (f'"format": {FORMAT}', '"format": 1', ""),
        ('"scales": [', '"scales": ["1", ', "$.firmware.inputs[0].quantization.scales[0]"),
        ('"load-store"', '"lead-store"', "$.target.core.pipeline.vector[0][1][0]"),
        ('"v(ld|st)[24]', '"v(ld|st[24]', "no regular expression: missing ), unterminated subpattern"),
    ],
)
def test_a_manifest_that_was_written_by_hand(refused, build, tmp_path, old, new, where):
    folder = tmp_path / "build"
    shutil.copytree(build, folder)
    text = (folder / "manifest.json").read_text()
    assert old in text
    (folder / "manifest.json").write_text(text.replace(old, new))
    seal(folder)
    message = refused("run", folder, "--random", 1)
    assert where in message and "compile again" in message


def test_a_module_without_main(refused, build, tmp_path):
    folder = tmp_path / "build"
    shutil.copytree(build, folder)
    (folder / "placed.mlirbc").write_text("module {}")
    seal(folder)
    message = refused("verify", folder)
    assert "placed.mlirbc" in message and "no function `main`" in message and "compile again" in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("@cpu_0_", "@other_0_", "it does not call `cpu_0_"),
        ('tosaic.processor = "cpu"', 'tosaic.processor = "npu"', "tosaic.op"),
        ('tosaic.processor = "cpu"', "tosaic.other", "has no processor"),
        ("func.func private", "func.func", "is not private"),
    ],
)
def test_a_placed_module_of_another_build(refused, build, tmp_path, old, new, words):
    folder = tmp_path / "build"
    shutil.copytree(build, folder)
    text = str(parse((folder / "placed.mlirbc").read_bytes()))
    assert old in text
    (folder / "placed.mlirbc").write_text(text.replace(old, new))
    seal(folder)
    message = refused("verify", folder)
    assert "placed.mlirbc" in message and words in message and "compile again" in message


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((1, 17), np.float32), "has the shape [1, 16], got [1, 17]"),
        (np.zeros((1, 16), np.int16), "is int8, got int16"),
        (np.zeros((1, 16), "U4"), "is int8, got <U4"),
        (np.full((1, 16), np.inf, np.float32), "holds a NaN or an infinity"),
    ],
)
def test_inputs_that_do_not_fit(refused, build, tmp_path, array, words):
    np.save(tmp_path / "x.npy", array)
    assert words in refused("run", build, "--input", tmp_path / "x.npy")
    assert not (build / "run").exists()


def test_an_input_file_that_is_none(refused, build, tmp_path):
    for content in (b"not numpy", b"", b"PK\x03\x04" + bytes(100)):
        (tmp_path / "x.npy").write_bytes(content)
        assert f"cannot read `{tmp_path / 'x.npy'}`" in refused("run", build, "--input", tmp_path / "x.npy")
    assert f"cannot read `{tmp_path / 'y.npy'}`" in refused("run", build, "--input", tmp_path / "y.npy")


def test_too_many_inputs(refused, build, tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros((1, 16)), b=np.zeros((1, 16)))
    assert "the model takes 1 inputs, got 2" in refused("run", build, "--input", tmp_path / "x.npz")


def test_an_fvp_that_is_not_there(refused, build, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "FVP" in refused("run", build, "--random", 1, "--runner", "fvp")


@pytest.mark.parametrize(
    "arguments",
    [("--target",), ("--tune-trials", "-1"), ("--activations", "int4"), ("--kernels", "none"), ("--search", "randon"),
     ("--bogus",)],
)  # fmt: skip
def test_options_that_cannot_be_are_answered_by_the_parser(tosaic, arguments):
    result = tosaic("compile", NET, *arguments)
    assert result.exit_code == 2 and "Error:" in result.stderr and result.stdout == ""


def test_a_failed_compile_makes_no_folder_at_all(refused, tmp_path):
    refused("compile", "model.h5", "-o", tmp_path / "a" / "b" / "build")
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(tosaic):
    result = tosaic("compile", "model.h5", "--debug")
    assert result.exit_code == 1 and "Traceback" in result.stderr and "is not a model" in result.stderr


def test_records_that_are_none_are_not_imported(refused, tosaic, tmp_path):
    records, lines = tmp_path / "records.db", tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"key": 1}) + "\n")
    message = refused("records", "import", lines, "--records", records)
    assert "this is not a tuning record" in message and f"{lines}:1" in message


DATA_DEPENDENT = """
import torch
from torch import nn

class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

class Size(nn.Module):
    def forward(self, x):
        return x[: int(x.sum())]

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
    def forward(self, x):
        return self.layer(x)

def branch(): return Branch(), (torch.ones(1, 8),)
def size(): return Size(), (torch.ones(8),)
def shape(): return Twice(), (torch.ones(1, 9),)
def missing(): return Twice(), ()
def weights(): return Twice().state_dict(), (torch.ones(1, 8),)
def script(): return torch.jit.script(Twice()), (torch.ones(1, 8),)
"""


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A file of models that torch.export does not take."""
    file = tmp_path_factory.mktemp("strange") / "strange.py"
    file.write_text(DATA_DEPENDENT)
    return file


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("branch", 7, r"depends on the values of the inputs[\s\S]*torch.where or torch.cond in place of `if`"),
        ("size", 11, "a fixed size in place of a computed one"),
        ("shape", 18, r"mat1 and mat2 shapes cannot be multiplied \(1x9 and 8x4\); the example is float32 \[1, 9\]"),
        ("missing", None, "missing 1 required positional argument: 'x'"),
        ("weights", None, r"a state dict holds weights alone: net.load_state_dict\(...\) puts them into the module"),
        ("script", None, "a TorchScript module cannot be compiled"),
    ],
)
def test_a_model_that_torch_does_not_export_is_one_message(compile_refused, capfd, strange, name, line, words):
    """Nothing beside it: torch prints beside Python's streams."""
    message = compile_refused(f"{strange}:{name}")
    assert capfd.readouterr() == ("", "")
    assert re.search(words, message)
    assert message.startswith("error: ") and len(message.splitlines()) <= 4
    assert line is None or f"at: {strange}:{line}\n" in message


def test_a_process_of_its_own_says_no_more(strange, tmp_path):
    command = [sys.executable, "-m", "tosaic", "compile", f"{strange}:branch", "-o", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) <= 4


@pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.safetensors", "net.ckpt"])
def test_weights_alone_are_no_model(compile_refused, name):
    message = compile_refused(name)
    assert f"`{name}` is not an exported program" in message and "torch.export.save(torch.export.export(" in message


def test_a_program_in_training_mode_is_refused(compile_refused, tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)).train()
    torch.export.save(torch.export.export(net, (torch.randn(4, 8),)), tmp_path / "net.pt2")
    message = compile_refused(tmp_path / "net.pt2")
    assert "the program was exported in training mode" in message and "call .eval() on the model" in message


def test_a_module_in_training_mode_is_compiled_for_evaluation_and_told(tosaic, tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn, ones\n"
        "def net(): return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout()), (ones(1, 8),)\n"
    )
    result = tosaic("compile", f"{tmp_path / 'net.py'}:net", "-o", tmp_path / "build")
    assert result.exit_code == 0
    assert "the model is in training mode (`1` and 1 more); it is compiled in evaluation mode" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("compile", "net.pt"), 1, "`net.pt` is not an exported program"),
        (("compile", "net.pt", "--activations", "int4"), 2, "'int4' is not one of 'int8', 'int16'"),
        (("run",), 2, "Missing argument 'BUILD'"),
        (("npu", "disasm", "--bogus"), 2, "No such option '--bogus'"),
        (("compil",), 2, "No such command 'compil'"),
    ],
)
def test_an_error_is_an_object_with_json(tosaic, arguments, code, what):
    result = tosaic(*arguments, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == code and result.stdout.count("\n") == 1
    assert list(found) == ["error"] and list(found["error"]) == ["what", "where", "why", "hint"]
    assert what in found["error"]["what"] and what in result.stderr


def test_what_a_model_prints_is_no_part_of_the_object(tosaic, tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn, ones\nprint('imported')\n"
        "def net():\n    print('made')\n    return nn.Linear(8, 4), (ones(1, 8),)\n"
    )
    result = tosaic("compile", f"{tmp_path / 'net.py'}:net", "-o", tmp_path / "build", "--json")
    assert json.loads(result.stdout)["model"].endswith("net.py:net") and "imported\nmade\n" in result.stderr


def test_a_target_whose_memory_the_machine_has_not(compile_refused, tmp_path):
    declared = (Path(__file__).parents[2] / "examples" / "targets" / "mps2-an386.toml").read_text()
    for old, new in (
        ('machine = "mps2-an386"', 'machine = "mps2-an511"'),  # whose memories the simulator is not told
        ("cortex-m4", "cortex-m3"),
        ("thumbv7em-none-eabihf", "thumbv7m-none-eabi"),
        ('["dsp", "fp"]', "[]"),
        ('"hard"', '"soft"'),
    ):
        declared = declared.replace(old, new)
    (tmp_path / "stack.toml").write_text(declared.replace("base = 0x2000_0000", "base = 0x7000_0000"))
    (tmp_path / "arena.toml").write_text(declared.replace("base = 0x2001_0000", "base = 0x7001_0000"))
    message = compile_refused(SMALL, "--target", tmp_path / "stack.toml")
    assert "the core locked up on `mps2-an511`" in message and "R00=" not in message
    (tmp_path / "outputs").rmdir()
    message = compile_refused(SMALL, "--target", tmp_path / "arena.toml")
    assert "where no memory answers, at 0x7001" in message and "cfsr" not in message


LARGE = """
func.func @main(%x: tensor<1x16x16x8xi8>) -> tensor<1x12500x12500x8xi8> {
  %p = tosa.const_shape {values = dense<[0, 0, 6000, 6484, 6000, 6484, 0, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
  %z = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %0 = tosa.pad %x, %p, %z : (tensor<1x16x16x8xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x12500x12500x8xi8>
  return %0 : tensor<1x12500x12500x8xi8>
}
"""


def test_tensors_that_no_microcontroller_holds_are_not_computed(compile_refused, tmp_path):
    (tmp_path / "large.mlir").write_text(LARGE)
    message = compile_refused(tmp_path / "large.mlir")
    assert "`tosa.pad` is a tensor of 1,250,000,000 elements" in message and "[1, 12500, 12500, 8]" in message
    (tmp_path / "outputs").rmdir()
    (tmp_path / "net.py").write_text(
        "from torch import nn, ones\nclass Net(nn.Module):\n    def forward(self, x):\n"
        "        return nn.functional.pad(x, (6000, 6484, 6000, 6484)).amax((2, 3))\n"
        "def net():\n    return Net().eval(), (ones(1, 8, 16, 16),)\n"
    )
    message = compile_refused(f"{tmp_path / 'net.py'}:net")
    assert "`aten.pad.default` is a tensor of 1,250,000,000 elements" in message and "net.py:4" in message
