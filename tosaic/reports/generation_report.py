"""What a model generated, as a JSON object and as text."""

from __future__ import annotations

from math import prod

import numpy as np

from tosaic.builds.build import BuildFolder
from tosaic.runs.generation import Generation
from tosaic.terminal.console import print_facts, stdout


def generation_result(done: Generation, text: str) -> dict:
    """What `generate --json` prints."""
    decoder = done.build.manifest.firmware.decoder
    return {
        "build": str(done.build.folder),
        "prompt": list(done.prompt),
        "tokens": list(done.tokens),
        "text": text,
        "compared": done.compared,
        "exact": done.compared and not done.difference,
        "difference": done.difference,
        "cycles": [step.cycles for step in done.steps],
        "cycles_with_memory": [step.cycles_with_memory for step in done.steps],
        "npu_cycles": done.build.manifest.npu_cycles,
        "milliseconds_to_first_token": done.first_milliseconds,
        "tokens_per_second": done.tokens_per_second,
        "context": decoder.places if decoder else None,
        "state_bytes": state_bytes(done.build),
    }


def state_bytes(build: BuildFolder) -> int:
    """Bytes of all that the model keeps from call to call."""
    states = build.manifest.firmware.states
    return sum(prod(state.shape) * np.dtype(state.dtype).itemsize for state in states)


def print_generation(done: Generation, text: str) -> None:
    """The text, then what it cost."""
    stdout.print(text, highlight=False, soft_wrap=True)
    print_facts(_facts(done))


def _facts(done: Generation) -> list[tuple[str, str]]:
    decoder, kept = done.build.manifest.firmware.decoder, state_bytes(done.build)
    context = decoder.places if decoder else None
    facts = [("tokens", f"{len(done.prompt)} of the prompt, {len(done.tokens)} drawn"), ("reference", _judged(done))]
    if done.steps and done.steps[0].cycles_with_memory is not None:
        first, last = done.steps[0], done.steps[-1]
        npu = done.build.manifest.npu_cycles
        beside = f"; the NPU {npu:,} by its compiler's estimate" if npu else ""
        cycles = f"{first.cycles_with_memory:,} at first, {last.cycles_with_memory:,} at last{beside}"
        facts.append(("cycles a token", cycles))
    if done.tokens_per_second and done.first_milliseconds:
        begun = f"{done.first_milliseconds:.2f} ms to the first token"
        facts.append(("speed", f"{done.tokens_per_second:,.1f} tokens/s, {begun}"))
    held = f", {kept // context:,} B a token, for {context:,} tokens" if context else ""
    facts.append(("states", f"{kept:,} B{held}"))
    return facts


def _judged(done: Generation) -> str:
    if not done.compared:
        return "not compared"
    return done.difference or "equal: the integer module draws the same tokens by the same scores"
