"""Let a model generate on a simulated board, and compare each token with the integer module's."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.firmware.decoder import FOLDER, SAMPLER, Prefill, TokenDecoder
from tosaic.backends.simulators.execution import Execution
from tosaic.backends.simulators.run import Costs, costs_of_methods, costs_of_samples
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.builds.build import BuildFolder
from tosaic.runs.npu_execution import NpuChoice, npu_for
from tosaic.runs.running import difference_of_samples, reference_calls
from tosaic.runs.sampling import Sampler, Sampling
from tosaic.support.errors import Error

_NO_END = -1


@dataclass(frozen=True)
class Generation:
    """What a model generated on the board.

    Args:
        prompt: the tokens that it was given.
        tokens: those that it drew.
        steps: what each call cost: those that ran the prompt, then one for each drawn token but the last. Empty where
            the runner does not tell.
        npu_cycles: that each of them takes the NPU by its compiler's estimate.
        difference: where a token or its scores first differ from the integer module's; empty where they are equal.
        compared: whether they were compared.
    """

    build: BuildFolder
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    steps: tuple[Costs, ...]
    npu_cycles: tuple[int, ...]
    difference: str
    compared: bool

    @property
    def drawn_steps(self) -> int:
        """How many of the steps ran drawn tokens."""
        return len(self.tokens) - 1

    @property
    def milliseconds(self) -> list[float] | None:
        """What each step takes at the target's clocks, memory included; None where cycles or clocks are not known."""
        target, steps = self.build.manifest.target, zip(self.steps, self.npu_cycles, strict=True)
        taken = [target.milliseconds(step.cycles_with_memory, npu) for step, npu in steps]
        known = [each for each in taken if each is not None]
        return known if taken and len(known) == len(taken) else None

    @property
    def first_milliseconds(self) -> float | None:
        """From the prompt to the first token."""
        taken = self.milliseconds
        return sum(taken[: len(taken) - self.drawn_steps]) if taken else None

    @property
    def tokens_per_second(self) -> float | None:
        """Of the drawn tokens that were run; of the last one of the prompt where only one was drawn."""
        taken = self.milliseconds
        if not taken:
            return None
        drawn = taken[-max(1, self.drawn_steps) :]
        return 1000 * len(drawn) / sum(drawn)


def generate(
    build: BuildFolder,
    prompt: Sequence[int],
    most: int,
    *,
    sampling: Sampling = Sampling(),  # noqa: B008  a frozen value
    end: int | None = None,
    compare: bool = True,
    npu: NpuChoice = "emulator",
    runner: str = "qemu",
) -> Generation:
    """Run a prompt, then draw tokens and run them, by the loop and the sampler that the kit ships.

    Args:
        prompt: at least one token.
        most: tokens to draw, at least one; the context may hold fewer.
        end: the token that ends a text.
        compare: whether the integer module makes the same on the host: it runs all tokens once more.

    Raises:
        Error: the model does not generate, it does not have a token, its context does not hold the prompt, or the run
            failed.
    """
    decoder = build.manifest.firmware.decoder
    if decoder is None:
        raise Error(
            f"`{build.manifest.model}` does not generate",
            why="that takes a model with states, with an input of one integer, the token, perhaps a second one, "
            "its place, and with a first output of one score a token",
            hint="tosaic run",
        )
    _check(decoder, prompt, end)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
        elf = _linked(build, len(prompt), decoder.scores, Path(name))
        on = find_runner(runner, build.manifest.target)
        files = {"prompt.bin": _asked(prompt, most, sampling, end)}
        memories = simulation_of(build.manifest.target).layout.memories
        execution = on.run(elf, files, npu=npu_for(build, npu), timeout=3600.0, memories=memories)
    execution.check("the firmware that generates")
    tokens = np.frombuffer(execution.files.get("tokens.bin", b""), np.int32).tolist()
    steps = _steps(decoder, len(prompt), len(prompt) + len(tokens) - 1)
    costs = _costs(build, steps, execution) if execution.costs else []
    manifest = build.manifest
    cycles = [
        manifest.npu_cycles_of(step.method) if step.method else manifest.npu_cycles for step in steps[: len(costs)]
    ]
    text = [*prompt, *tokens]
    difference = _difference(build, decoder, text, len(prompt), sampling, execution, steps) if compare else ""
    return Generation(build, tuple(prompt), tuple(tokens), tuple(costs), tuple(cycles), difference, compare)


class _TokenStep(NamedTuple):
    """Tokens of a text that one call runs: `size` from number `first` on, by a method where the model has any."""

    method: str | None
    first: int
    size: int


def _steps(decoder: TokenDecoder, given: int, ran: int) -> list[_TokenStep]:
    """The calls of a generation, as the kit's loop makes them."""
    found, done, prefill = list[_TokenStep](), 0, decoder.prefill
    while prefill and given - done > prefill.tokens and done + prefill.tokens <= (decoder.places or ran):
        found.append(_TokenStep(prefill.method, done, prefill.tokens))
        done += prefill.tokens
    return [*found, *(_TokenStep(decoder.method, number, 1) for number in range(done, ran))]


def _costs(build: BuildFolder, steps: Sequence[_TokenStep], execution: Execution) -> list[Costs]:
    firmware = build.manifest.firmware
    if not firmware.methods:
        return costs_of_samples(firmware, execution, [0] * len(steps))
    return costs_of_methods(firmware, execution, [step.method or "" for step in steps])


def _check(decoder: TokenDecoder, prompt: Sequence[int], end: int | None) -> None:
    if not prompt:
        raise Error("the prompt is empty", hint="give it a token at least")
    for token in (*prompt, *(() if end is None else (end,))):
        if not 0 <= token < decoder.tokens:
            raise Error(f"there is no token {token}", why=f"the model has {decoder.tokens} tokens, from 0 on")
    if decoder.places is not None and len(prompt) > decoder.places:
        raise Error(f"the prompt has {len(prompt)} tokens", why=f"the model's context holds {decoder.places}")


def _asked(prompt: Sequence[int], most: int, sampling: Sampling, end: int | None) -> bytes:
    """`prompt.bin`, as `generation_main.c` reads it."""
    sampler = struct.pack("<ffII", sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed)
    return sampler + struct.pack(f"<Ii{len(prompt)}i", most, _NO_END if end is None else end, *prompt)


def _linked(build: BuildFolder, prompt: int, scores: int, folder: Path) -> Path:
    """The model with what generates for a prompt of so many tokens by the output number `scores`."""
    firmware, core = build.manifest.firmware, build.manifest.target.core
    kit = build.folder / "kit"
    loop = f"{firmware.name}_generate"
    flags = [f"-I{kit / 'include'}", f"-I{kit / FOLDER}"]
    macros = [f'-DHEADER="{loop}.h"', f"-DMODEL(x)={firmware.name}_##x", f"-DPROMPT={prompt}", f"-DSCORES={scores}"]
    main, objects = folder / "main.o", [folder / "loop.o", folder / "sampler.o"]
    toolchain.compile_c(toolchain.SOURCES / "generation_main.c", main, core, *flags, *macros)
    for source, made in zip((f"{loop}.c", SAMPLER[1]), objects, strict=True):
        toolchain.compile_c(kit / FOLDER / source, made, core, *flags)
    parts = simulator_objects(build.folder, firmware.name, core, firmware.has_npu, str(main))
    elf = folder / "generate.elf"
    toolchain.link([*parts, *objects], build.folder / "model.ld", elf, core)
    return elf


def _difference(
    build: BuildFolder,
    decoder: TokenDecoder,
    text: Sequence[int],
    given: int,
    sampling: Sampling,
    execution: Execution,
    steps: Sequence[_TokenStep],
) -> str:
    """The first token that the integer module does not draw, or whose scores it does not have; empty without.

    Args:
        text: the prompt of `given` tokens, and the drawn ones.
    """
    calls = [(step.method, _inputs(build, decoder, step, text)) for step in steps]
    results = reference_calls(build, calls)[len(steps) - (len(text) - given) :]
    expected = [outputs[:1] for outputs in results]
    scores, sampler = build.manifest.firmware.outputs[decoder.scores], Sampler(sampling)
    board = np.frombuffer(execution.files.get("scores.bin", b""), scores.dtype).reshape(-1, *scores.shape)
    if found := difference_of_samples(expected, [[each] for each in board]):
        return f"the scores of drawn token {found.removeprefix('sample ')}"
    for number, ((row,), drawn) in enumerate(zip(expected, text[given:], strict=True)):
        if (token := sampler.sample(row, scores.quantization)) != drawn:
            return f"drawn token {number} is {drawn} on the board, and {token} by the integer module's scores"
    return ""


def _inputs(build: BuildFolder, decoder: TokenDecoder, step: _TokenStep, text: Sequence[int]) -> list[np.ndarray]:
    """What a step takes."""
    roles: TokenDecoder | Prefill = decoder
    if decoder.prefill and step.method == decoder.prefill.method:
        roles = decoder.prefill
    values = {roles.token: text[step.first : step.first + step.size], roles.place: range(step.first, len(text))}
    own = [each for each in build.manifest.firmware.inputs if each.name in values]
    return [np.array(values[each.name][: prod(each.shape)], each.dtype).reshape(each.shape) for each in own]
