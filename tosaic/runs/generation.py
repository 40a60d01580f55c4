"""Let a model generate on a simulated board, and compare each token with the integer module's."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.firmware.decoder import FOLDER, SAMPLER, TokenDecoder
from tosaic.backends.simulators.execution import Execution
from tosaic.backends.simulators.run import Costs, costs_of_samples
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.builds.build import BuildFolder
from tosaic.runs.npu_execution import NpuChoice, npu_for
from tosaic.runs.running import difference_of_samples, reference_outputs
from tosaic.runs.sampling import Sampler, Sampling
from tosaic.support.errors import Error

_NO_END = -1


@dataclass(frozen=True)
class Generation:
    """What a model generated on the board.

    Args:
        prompt: the tokens that it was given.
        tokens: those that it drew.
        steps: what each token that was run cost: those of the prompt, then the drawn ones but the last. Empty where the
            runner does not tell.
        difference: where a token or its scores first differ from the integer module's; empty where they are equal.
        compared: whether they were compared.
    """

    build: BuildFolder
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    steps: tuple[Costs, ...]
    difference: str
    compared: bool

    @property
    def milliseconds(self) -> list[float] | None:
        """What each step takes at the target's clocks, memory included; None where cycles or clocks are not known."""
        target, npu = self.build.manifest.target, self.build.manifest.npu_cycles
        taken = [target.milliseconds(step.cycles_with_memory, npu) for step in self.steps]
        known = [each for each in taken if each is not None]
        return known if taken and len(known) == len(taken) else None

    @property
    def first_milliseconds(self) -> float | None:
        """From the prompt to the first token."""
        taken = self.milliseconds
        return sum(taken[: len(self.prompt)]) if taken else None

    @property
    def tokens_per_second(self) -> float | None:
        """Of the drawn tokens that were run; of those of the prompt where only one was drawn."""
        taken = self.milliseconds
        if not taken:
            return None
        drawn = taken[len(self.prompt) :] or taken
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
        elf = _linked(build, len(prompt), Path(name))
        on = find_runner(runner, build.manifest.target)
        files = {"prompt.bin": _asked(prompt, most, sampling, end)}
        memories = simulation_of(build.manifest.target).layout.memories
        execution = on.run(elf, files, npu=npu_for(build, npu), timeout=3600.0, memories=memories)
    execution.check("the firmware that generates")
    tokens = np.frombuffer(execution.files.get("tokens.bin", b""), np.int32).tolist()
    ran = len(prompt) + len(tokens) - 1
    steps = costs_of_samples(build.manifest.firmware, execution, [0] * ran) if execution.costs else []
    difference = _difference(build, decoder, [*prompt, *tokens], len(prompt), sampling, execution) if compare else ""
    return Generation(build, tuple(prompt), tuple(tokens), tuple(steps), difference, compare)


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


def _linked(build: BuildFolder, prompt: int, folder: Path) -> Path:
    """The model with what generates."""
    firmware, core = build.manifest.firmware, build.manifest.target.core
    kit = build.folder / "kit"
    loop = f"{firmware.name}_generate"
    flags = [f"-I{kit / 'include'}", f"-I{kit / FOLDER}"]
    macros = [f'-DHEADER="{loop}.h"', f"-DMODEL(x)={firmware.name}_##x", f"-DPROMPT={prompt}"]
    main, objects = folder / "main.o", [folder / "loop.o", folder / "sampler.o"]
    toolchain.compile_c(toolchain.SOURCES / "generation_main.c", main, core, *flags, *macros)
    for source, made in zip((f"{loop}.c", SAMPLER[1]), objects, strict=True):
        toolchain.compile_c(kit / FOLDER / source, made, core, *flags)
    parts = simulator_objects(build.folder, firmware.name, core, firmware.has_npu, str(main))
    elf = folder / "generate.elf"
    toolchain.link([*parts, *objects], build.folder / "model.ld", elf, core)
    return elf


def _difference(
    build: BuildFolder, decoder: TokenDecoder, text: Sequence[int], given: int, sampling: Sampling, execution: Execution
) -> str:
    """The first token that the integer module does not draw, or whose scores it does not have; empty without.

    Args:
        text: the prompt of `given` tokens, and the drawn ones.
    """
    firmware = build.manifest.firmware
    samples = [_inputs(build, decoder, token, place) for place, token in enumerate(text[:-1])]
    expected = [outputs[:1] for outputs in reference_outputs(build, samples)[given - 1 :]]
    scores, sampler = firmware.outputs[0], Sampler(sampling)
    board = np.frombuffer(execution.files.get("scores.bin", b""), scores.dtype).reshape(-1, *scores.shape)
    if found := difference_of_samples(expected, [[each] for each in board]):
        return f"the scores of drawn token {found.removeprefix('sample ')}"
    for number, ((row,), drawn) in enumerate(zip(expected, text[given:], strict=True)):
        if (token := sampler.sample(row, scores.quantization)) != drawn:
            return f"drawn token {number} is {drawn} on the board, and {token} by the integer module's scores"
    return ""


def _inputs(build: BuildFolder, decoder: TokenDecoder, token: int, place: int) -> list[np.ndarray]:
    values = {decoder.token: token, decoder.place: place}
    return [np.full(each.shape, values[each.name], each.dtype) for each in build.manifest.firmware.inputs]
