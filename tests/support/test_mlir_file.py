"""Files of MLIR that are damaged or dangerous are refused by a child, and the process that asked goes on."""

from __future__ import annotations

import pytest

from tosaic.support import mlir
from tosaic.support.errors import PassError
from tosaic.support.mlir_file import read_mlir

NAMED = """func.func @"größe"(%x: tensor<1x300xi8>) -> tensor<1x300xi8> {
  %y = tosa.clamp %x {max_val = 5 : i8, min_val = -3 : i8} : (tensor<1x300xi8>) -> tensor<1x300xi8>
  return %y : tensor<1x300xi8>
}"""


@pytest.mark.parametrize("name", [b"tosa", b"clamp", "größe".encode()])
@pytest.mark.parametrize("form", ["text", "bytecode"])
def test_a_file_whose_names_are_no_text(name, form):
    sound = mlir.bytecode(mlir.parse(NAMED)) if form == "bytecode" else NAMED.encode()
    assert name in sound
    with pytest.raises(PassError, match=r"a name in it is not UTF-8|unexpected character"):
        read_mlir(sound.replace(name, name[:-1] + b"\xff"))


def test_values_in_a_file_need_not_be_text():
    module = read_mlir(rb'module attributes {a.of = "\F6"} { func.func @"gr\C3\B6\C3\9Fe"() { return } }')
    assert list(mlir.functions(module)) == ["größe"]
    assert list(mlir.functions(read_mlir(mlir.bytecode(module)))) == ["größe"]


@pytest.mark.parametrize("form", ["text", "bytecode"])
def test_names_of_a_file_may_have_any_letters(form):
    sound = mlir.bytecode(mlir.parse(NAMED)) if form == "bytecode" else NAMED.encode()
    assert list(mlir.functions(read_mlir(sound))) == ["größe"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"module {" * 300 + b"}" * 300, "nested more than 256 levels deep"),
        (b"module attributes {a = " + b"[" * 100_000 + b"]" * 100_000 + b"} {}", "crashed, or needed more than 2 GiB"),
    ],
)
def test_what_is_nested_too_deep(source, words):
    with pytest.raises(PassError, match=words):
        read_mlir(source)
    assert list(mlir.functions(read_mlir(b"func.func @f() { return }"))) == ["f"]
