"""Where models come in: a `.pt2`, an `.onnx`, a factory in a Python file, or the zoo."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from tosaic.frontend.canonical import arguments, placeholders
from tosaic.frontend.decomposition import decomposed
from tosaic.frontend.export import export, refuse_training, training_advice
from tosaic.frontend.interface import Batch, Call, as_call, flatten, resized, result_names, tensors_of
from tosaic.frontend.layouts import channels_last, give_channels_last, take_channels_last, take_scalars, with_axes
from tosaic.frontend.masks import ends_in_softmax
from tosaic.frontend.methods import InTurn, Methods, enter_methods, exported_methods, joined, number_states
from tosaic.frontend.onnx_file import example_inputs, read_onnx
from tosaic.frontend.precision import is_half, widened, widened_tensor
from tosaic.frontend.program_file import read_program
from tosaic.frontend.python_file import call, is_function
from tosaic.frontend.samples import as_sample, check_sample, read_samples
from tosaic.frontend.sizes import refuse_large_tensors
from tosaic.frontend.state import State, in_turn, take_states
from tosaic.frontend.state_layouts import as_read
from tosaic.frontend.torchao_weights import take_torchao_weights
from tosaic.frontend.unsigned import as_floats, as_signed, take_bytes, take_stored
from tosaic.support.errors import Advice, ModelError
from tosaic.support.methods import Method
from tosaic.support.tosa_ops import MOST_AXES

Model: TypeAlias = str | nn.Module | ExportedProgram | Methods
Calibration: TypeAlias = str | Path | Tensor | np.ndarray | Iterable[Any] | None

_WEIGHTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl")
_SAVE = (
    "build the model, load its weights, and save it with "
    "torch.export.save(torch.export.export(model.eval(), inputs), 'model.pt2')"
)


@dataclass(frozen=True)
class Capture:
    """A model as it came in.

    A program's int64 tensors are compiled to int32: inputs are given as int32 at run time, and must fit.

    Args:
        name: a short name fit for files.
        program: functional ATen, float or already quantized.
        inputs: example inputs, one tensor for each of the program's.
        calibration: batches shaped like `inputs`; of a model that keeps states, calls one behind the other.
        result_names: by keys and fields of what the model returns; empty where they have numbers alone.
        states: what the model keeps between calls: the program's last inputs and its last results.
        bytes: the numbers of the inputs that are uint8 at run time, and floats from 0 to 255 here.
        advice: what the user should know of how it came in.
        methods: what the program calls in turn; empty where it is one.
    """

    name: str
    program: ExportedProgram
    inputs: Batch
    calibration: Sequence[Batch]
    result_names: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    bytes: tuple[int, ...] = ()
    advice: tuple[Advice, ...] = ()
    methods: tuple[Method, ...] = ()

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, as the model's `forward` has them, and of the states."""
        names = _input_names(self.program)
        return [*names[: len(names) - len(self.states)], *(state.name for state in self.states)]

    @property
    def output_names(self) -> list[str]:
        """The names of the results, and of the states."""
        results = [one for one in arguments(self.program.graph.output_node())[0] if isinstance(one, Node)]
        own = self.result_names or [f"output_{index}" for index in range(len(results) - len(self.states))]
        return [*own, *(state.name for state in self.states)]


def capture(
    model: Model,
    calibration: Calibration = None,
    inputs: Any = None,
    nhwc: bool = False,
    nhwc_results: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    columns: bool = False,
) -> Capture:
    """Capture a model.

    Args:
        model: a `.pt2` or `.onnx` file, `file.py:factory` where the factory returns (module, example inputs[,
            calibration batches]), or `zoo:NAME`; or a module or program itself, which stays as it is. Several
            factories, `file.py:one,other`, or a dict of (module, example inputs), are methods of one model.
        calibration: what `read_samples` reads, or samples, each nested as the example inputs are.
        inputs: example inputs in place of the model's own: its arguments, or a dict of keyword arguments. They may be
            nested; what is no tensor among them is constant.
        nhwc: let inputs of four axes come with their channels last; the data above are in the model's layout.
        nhwc_results: let results of four axes go out with their channels last.
        shapes: of inputs by name, for a model that takes several.
        columns: let states that products read lie as vectors multiply them, column by column.

    Raises:
        ModelError: the model, its inputs or the calibration data cannot be used; the message says which and why.
    """
    shapes = shapes or {}
    name, module, example, given = _load(model, inputs, shapes)
    program, example = _exported(module, example, shapes)
    refuse_large_tensors(program)
    advice = () if isinstance(module, ExportedProgram) else training_advice(module)
    methods = exported_methods(example, program) if isinstance(module, InTurn) else ()
    names = result_names(program)[: sum(method.results for method in methods) or None]
    examples = tensors_of(example, example)
    flatten(program, examples)
    take_scalars(program, placeholders(program))
    examples = with_axes(examples)
    _check_weights(program)
    _check_inputs(program, examples)
    call_of = module.as_one_call if isinstance(module, InTurn) else as_call
    calls = [call_of(sample) for sample in (calibration if _are_calls(calibration) else given)]
    batches = _batches(calibration, calls, example, examples, _input_names(program))
    if nhwc:
        take_channels_last(program, placeholders(program))
        examples, batches = channels_last(examples), list(map(channels_last, batches))
    if nhwc_results:
        give_channels_last(program)
    program = decomposed(program)
    images, (examples, *batches) = _take_unsigned(program, [examples, *batches])
    entered = enter_methods(program, module, methods) if isinstance(module, InTurn) else {}
    states = take_states(program, set(entered.values()))
    number_states(entered, [state.name for state in states])
    if states:
        _check_placeholders(program)
        program = decomposed(program)
        states = as_read(program, states, columns)
        examples = in_turn(program, states, [examples])[0]
    seen = in_turn(program, states, batches) if states else tuple(batches)
    return Capture(name, program, examples, seen, names, states, tuple(images), advice, methods)


def _take_unsigned(program: ExportedProgram, batches: Sequence[Batch]) -> tuple[Sequence[int], list[Batch]]:
    """Let inputs of uint8 be floats, or signed where the program stores them; which are floats, and the batches so."""
    images = take_bytes(program, placeholders(program))
    floats = [as_floats(batch, images) for batch in batches]
    stored = take_stored(program, placeholders(program))
    return images, [as_signed(batch, stored) for batch in floats]


def _batches(
    calibration: Calibration, calls: Sequence[Call], example: Call, examples: Batch, names: list[str]
) -> list[Batch]:
    """The calibration data: calls, or what is read where it is something else; the examples where there is none."""
    samples = [with_axes(tensors_of(pytree.tree_map(widened_tensor, call), example)) for call in calls]
    batches = [tuple(map(as_sample, sample, examples)) for sample in samples]
    if calibration is not None and not _are_calls(calibration):
        batches = read_samples(calibration, names, examples, "calibration")
    batches = batches or [examples]
    for batch in batches:
        check_sample(batch, examples, names, "calibration data")
    return batches


def _are_calls(calibration: Calibration) -> TypeGuard[Iterable[Any]]:
    """Whether it is samples, and nothing that `read_samples` takes apart."""
    return calibration is not None and not isinstance(calibration, str | Path | Tensor | np.ndarray)


def _load(
    model: Model, inputs: Any, shapes: Mapping[str, Sequence[int]]
) -> tuple[str, nn.Module | ExportedProgram, Call, Iterable[Any]]:
    """A name, a model, example inputs, and samples to calibrate with."""
    if not isinstance(model, str):
        return _given(model, inputs)
    if model.startswith("zoo:"):
        from tosaic import zoo

        name = model.removeprefix("zoo:")
        module, examples, batches = zoo.load(name)
        return name, module, as_call(examples if inputs is None else inputs), batches
    if is_function(model) and "," in model.rpartition(":")[2]:
        return _several(model, inputs)
    if is_function(model):
        module, own_inputs, samples = _call_factory(model)
        return model.rpartition(":")[2], module, as_call(own_inputs if inputs is None else inputs), samples
    if model.endswith(".pt2"):
        program = read_program(Path(model))
        saved: Call = program.example_inputs or ((), {})
        return Path(model).stem, program, saved if inputs is None else as_call(inputs), ()
    if model.endswith(".onnx"):
        graph = read_onnx(Path(model))
        return Path(model).stem, graph, as_call(example_inputs(graph, shapes) if inputs is None else inputs), ()
    if Path(model).suffix in _WEIGHTS:
        raise ModelError(
            f"`{model}` is not an exported program",
            why="it holds weights, a pickled module or TorchScript",
            hint=_SAVE,
        )
    hint = "give file.py:factory, zoo:NAME, or a .pt2, .onnx, .tflite, .tosa or .mlir file"
    raise ModelError(f"`{model}` is not a model", hint=hint)


def _several(model: str, inputs: Any) -> tuple[str, InTurn, Call, Iterable]:
    """The methods that `file.py:one,other` names, each with its own samples, in turn."""
    file, _, listed = model.rpartition(":")
    names = [name.strip() for name in listed.split(",")]
    made = {name: _call_factory(f"{file}:{name}") for name in names}
    module, example = joined({name: (net, own) for name, (net, own, _) in made.items()})
    given = [list(samples) for _, _, samples in made.values()]
    if len(set(map(len, given))) > 1:
        counts = ", ".join(f"{name} {len(samples)}" for name, samples in zip(names, given, strict=True))
        raise ModelError("the methods have different numbers of calibration batches", why=counts)
    samples = [dict(zip(names, each, strict=True)) for each in zip(*given, strict=True)]
    return "_".join(names), module, example if inputs is None else module.as_one_call(inputs), samples


def _given(model: Any, inputs: Any) -> tuple[str, nn.Module | ExportedProgram, Call, Iterable]:
    if isinstance(model, ExportedProgram):
        program = copy.deepcopy(model)  # capture flattens it in place
        saved: Call = program.example_inputs or ((), {})
        return "program", program, saved if inputs is None else as_call(inputs), ()
    if isinstance(model, Mapping) and all(isinstance(each, tuple) for each in model.values()):
        module, example = joined(model)
        return "_".join(model), module, example if inputs is None else module.as_one_call(inputs), ()
    if not isinstance(model, nn.Module):
        raise ModelError(f"a {type(model).__name__} is no model", hint=_hint(model))
    if inputs is None:
        raise ModelError(f"`{type(model).__name__}` needs example inputs", hint="a tensor, or a tuple of all arguments")
    return type(model).__name__, model, as_call(inputs), ()


def _call_factory(text: str) -> tuple[nn.Module, Any, Iterable]:
    made = call(text)
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        listed = made if isinstance(made, tuple) else (made,)
        kinds = ", ".join(type(one).__name__ for one in listed)
        raise ModelError(
            f"{text} must return (module, example inputs) or (module, example inputs, calibration batches)",
            why=f"it returned {f'({kinds})' if isinstance(made, tuple) else kinds}",
            hint=_hint(*listed[:1]),
        )
    return made[0], made[1], made[2] if len(made) == 3 else ()


def _hint(model: object = None) -> str:
    """What to give in place of something that is no model."""
    if isinstance(model, Mapping):
        return "a state dict holds weights alone: net.load_state_dict(...) puts them into the module"
    return "an nn.Module, an ExportedProgram, or a file"


def _exported(
    model: nn.Module | ExportedProgram, example: Call, shapes: Mapping[str, Sequence[int]]
) -> tuple[ExportedProgram, Call]:
    """The program of a model in float32, for inputs of the shapes given, and an example of these."""
    if isinstance(model, ExportedProgram):
        refuse_training(model)
    program = model if isinstance(model, ExportedProgram) else export(model, example)
    if shapes:
        example = resized(program, example, shapes)
        program = export(model.module() if isinstance(model, ExportedProgram) else model, example)
    take_torchao_weights(program)
    if is_half(program):
        example = pytree.tree_map(widened_tensor, example)
        program = export(widened(program.module()), example)
    return program, example


def _check_weights(program: ExportedProgram) -> None:
    buffers = program.graph_signature.inputs_to_buffers
    masks = {buffers[node.name] for node in program.graph.nodes if node.name in buffers and ends_in_softmax(node)}
    for name, tensor in program.state_dict.items():
        known = tensor[tensor != -torch.inf] if name in masks else tensor
        if tensor.is_floating_point() and not torch.isfinite(known).all():
            raise ModelError(f"the weight `{name}` holds NaN or infinity", hint="check the training run or the file")


def _check_inputs(program: ExportedProgram, examples: Batch) -> None:
    inputs = placeholders(program)
    if not inputs:
        raise ModelError("the model takes no inputs")
    if not any(isinstance(result, Node) for result in arguments(program.graph.output_node())[0]):
        raise ModelError("the model gives no tensor")
    _check_placeholders(program)
    if len(examples) != len(inputs):
        raise ModelError(
            f"the model takes {len(inputs)} inputs, {len(examples)} examples are given",
            hint="pass example inputs, or save the program together with them",
        )


def _check_placeholders(program: ExportedProgram) -> None:
    for node in placeholders(program):
        value = node.meta["val"]
        if not value.ndim:
            raise ModelError(f"the input `{node.name}` has no axes", hint="give it the shape [1]")
        if 0 in value.shape:
            raise ModelError(f"the input `{node.name}` has no elements")
        if value.ndim > MOST_AXES:
            raise ModelError(
                f"the input `{node.name}` has {value.ndim} axes",
                why=f"TOSA knows tensors of {MOST_AXES} at most",
                hint="merge axes that stay together",
            )
        if any(not isinstance(size, int) for size in value.shape):
            dims = ", ".join(map(str, value.shape))
            raise ModelError(
                f"the input `{node.name}` has a dynamic shape ({dims})",
                hint=f"fix it, as a microcontroller's memory is planned beforehand: --shape {node.name}=1,...",
            )


def _input_names(program: ExportedProgram) -> list[str]:
    return [node.name for node in placeholders(program)]
