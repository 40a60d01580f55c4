"""Kernels that a person writes and schedules, tried on the simulator: for notebooks.

import tosaic.kernels

kernel = tosaic.kernels.Kernel.of("build/model", "cpu_2_conv2d")        # or Kernel.written(text, constants, inputs)
tried = tosaic.kernels.attempt(kernel, "unroll(k)", "mps2-an386.toml")  # tried.exact, .instructions, .text, .listing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.program.interpret import host_constants, interpreted
from tosaic.backends.cortex_m.program.kernel import Built, scheduled
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Step, parse_steps
from tosaic.backends.cortex_m.program.text import listing, parse_program
from tosaic.backends.cortex_m.program.tree import BYTES, NUMPY, REGISTERS, Buffer
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.simulators.measure import BatchMeasure, Candidate
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.simulators.trial_examples import Example, examples
from tosaic.backends.target import Target
from tosaic.builds.build import BuildFolder
from tosaic.compiler.trial_inputs import model_inputs, wide_kernel_inputs
from tosaic.support.errors import Error, unknown_name
from tosaic.support.functions import functions_on
from tosaic.target_files.ready import find_target
from tosaic.tuner.measurement import Measurement

_ARGUMENTS = ("in", "out", "const")
_PLACES = f"in {', '.join((*_ARGUMENTS, 'scratch', *REGISTERS))}"


@dataclass(frozen=True)
class Kernel:
    """What a kernel computes, and what it is tried on.

    Args:
        program: the algorithm, before any step.
        constants: an array for each buffer of the program in `const`, by name.
        tried: inputs, and the outputs that are right for them, each in the order of the program's arguments. The first
            is measured.
    """

    program: Program
    constants: Mapping[str, np.ndarray]
    tried: Sequence[Example]

    @staticmethod
    def of(build: BuildFolder | str | Path, name: str) -> Kernel:
        """A kernel of a build, by its name in the manifest. What is right is what `tosa_reference_model` computes.

        Raises:
            Error: there is no such kernel, or it is made without a program on the build's core.
        """
        found = build if isinstance(build, BuildFolder) else BuildFolder.load(Path(build))
        known = functions_on("cpu", found.placed)
        if name not in known:
            raise unknown_name("kernel", name, known)
        sample = model_inputs(found.placed, [*found.samples[0].inputs, *found.states], seed=0)
        wide = wide_kernel_inputs(found.placed, sample).get(name, ())
        task = KernelTask.of(known[name], found.manifest.target.core, inputs=[array.tobytes() for array in wide])
        (kernel,) = (kernel for kernel in found.manifest.kernels if kernel.name == name)
        algorithms = task.algorithms(parse_steps("\n".join(kernel.trace)))
        own = algorithms.get(kernel.schedule.partition(".")[0])
        program, constants = own if own is not None else next(iter(algorithms.values()))
        return Kernel(program, constants, examples(task.module, seed=0, data=task.inputs))

    @staticmethod
    def written(
        program: Program | str, constants: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]
    ) -> Kernel:
        """A kernel written from nothing. What is right is what its program means, statement by statement.

        Args:
            program: a tree, or its text as `listing` prints it.
            constants, inputs: integers of the shape of their buffers, by name.

        Raises:
            Error: the text is no program, or an array is missing or does not fit its buffer; or the program computes
                with what nobody wrote, or writes what does not fit.
        """
        try:
            parsed = parse_program(program) if isinstance(program, str) else program
        except (ValueError, SyntaxError) as error:
            raise Error("the text is no program", why=str(error)) from None
        tree = replace(parsed, arguments=tuple(sorted(parsed.arguments, key=lambda b: _ARGUMENTS.index(b.memory))))
        for b in tree.buffers.values():
            if b.dtype not in BYTES or b.memory not in (*_ARGUMENTS, "scratch", *REGISTERS):
                raise Error(f"`{b}` is no buffer", why=f"it holds {', '.join(BYTES)}, and lies {_PLACES}")
        known = _fitting(tree, "const", constants)
        given = _fitting(tree, "in", inputs)
        try:
            outputs = interpreted(tree, {**host_constants(tree, known), **given})
        except ValueError as error:
            raise Error("the program means nothing on these inputs", why=str(error)) from None
        except (KeyError, NameError) as error:
            raise Error("the program means nothing", why=f"there is no `{_named(error)}`") from None
        return Kernel(tree, known, [Example(tuple(given.values()), tuple(outputs.values()))])

    @property
    def listing(self) -> str:
        """The program as text."""
        return listing(self.program)


@dataclass(frozen=True)
class Attempt:
    """A kernel after some steps, and how it ran.

    Attributes:
        built: the program after the steps, and its C.
        measurement: of a call on the simulator.
    """

    built: Built
    measurement: Measurement

    @property
    def exact(self) -> bool:
        """Whether it put out what is right, to the bit, and wrote nowhere else."""
        return self.measurement.ok

    @property
    def message(self) -> str:
        """What is wrong where it is not exact."""
        return self.measurement.message

    @property
    def instructions(self) -> int:
        """That a call executed; 0 where it is not exact."""
        return self.measurement.instructions

    @property
    def cycles(self) -> int | None:
        """Of the core and its memories; None where no cycle model of the core exists."""
        return self.measurement.cycles_with_memory

    @property
    def text(self) -> str:
        """Its C, with `@SYMBOL@` for the name of the function."""
        return self.built.text

    @property
    def listing(self) -> str:
        """The tree after the steps."""
        return listing(self.built.program)

    @property
    def features(self) -> Mapping[str, float]:
        """What the cost model knows of it, by name; `estimate` is what instructions were thought to be."""
        return self.built.features


def attempt(kernel: Kernel, steps: str | Iterable[Step], target: str | Target) -> Attempt:
    """Apply steps to a kernel, compile it, and try it on the simulator.

    Args:
        steps: a step a line, `#` begins a comment; or steps.
        target: a name that `tosaic targets` lists, a TOML file, or what `find_target` returned.

    Raises:
        Error: a step is not legal, or the core cannot run the result; the message says which and why.
    """
    where = find_target(target) if isinstance(target, str) else target
    listed = parse_steps(steps) if isinstance(steps, str) else tuple(steps)
    built = scheduled(kernel.program, listed, where.core)
    measure = BatchMeasure(find_runner("qemu", where), where.core, simulation_of(where).trials)
    measured = measure.kernels({0: Candidate(built.source("attempt", kernel.constants), kernel.tried)})
    return Attempt(built, measured[0])


def primitives() -> dict[str, str]:
    """What every schedule primitive does, in a sentence, by name; those of other packages too."""
    return {name: _first_sentence(primitive.__doc__ or "") for name, primitive in PRIMITIVES.known().items()}


def _named(error: KeyError | NameError) -> str:
    """What an error says is not there."""
    return str(error.args[0] if isinstance(error, KeyError) else error.name)


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _fitting(program: Program, memory: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a program's buffers in `memory`, in the order and of the dtypes of these.

    Raises:
        Error: one is missing, is none of these, or does not fit.
    """
    wanted = {b.name: b for b in program.arguments if b.memory == memory}
    if missing := [name for name in wanted if name not in arrays]:
        raise Error(
            f"there is no array for `{missing[0]}`", why=f"the program has {', '.join(map(str, wanted.values()))}"
        )
    if others := [name for name in arrays if name not in wanted]:
        raise unknown_name(f"buffer in `{memory}`", others[0], wanted)
    return {name: _of(b, np.asarray(arrays[name])) for name, b in wanted.items()}


def _of(b: Buffer, array: np.ndarray) -> np.ndarray:
    """An array as the elements of a buffer."""
    dtype = np.dtype(NUMPY[b.dtype])
    if dtype.kind == "f" and array.shape == b.shape and np.issubdtype(array.dtype, np.floating):
        return array.astype(dtype)
    limits = np.iinfo(np.int32 if dtype.kind == "f" else dtype)
    if array.shape != b.shape or not np.issubdtype(array.dtype, np.integer):
        raise Error(f"`{b}` takes no {array.dtype}{list(array.shape)}")
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise Error(f"`{b}` does not hold {array.min()} to {array.max()}")
    return array.astype(dtype)
