"""What a model generated, as a JSON object and as text."""

from __future__ import annotations

from tosaic.reports.methods import state_bytes, states_described
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
        "npu_cycles": done.npu_cycles[-1] if done.npu_cycles else None,
        "milliseconds_to_first_token": done.first_milliseconds,
        "tokens_per_second": done.tokens_per_second,
        "context": decoder.places if decoder else None,
        "state_bytes": state_bytes(done.build),
    }


def print_generation(done: Generation, text: str) -> None:
    """The text, then what it cost."""
    stdout.print(text, highlight=False, soft_wrap=True)
    print_facts(_facts(done))


def _facts(done: Generation) -> list[tuple[str, str]]:
    facts = [("tokens", f"{len(done.prompt)} of the prompt, {len(done.tokens)} drawn"), ("reference", _judged(done))]
    drawn = done.steps[-max(1, done.drawn_steps) :]
    given = done.steps[: len(done.steps) - done.drawn_steps]
    if drawn and drawn[0].cycles_with_memory is not None:
        npu = done.npu_cycles[-1]
        beside = f"; the NPU {npu:,} by its compiler's estimate" if npu else ""
        cycles = f"{drawn[0].cycles_with_memory:,} at first, {drawn[-1].cycles_with_memory:,} at last{beside}"
        prompt = sum(step.cycles_with_memory or 0 for step in given)
        facts += [("prompt", f"{prompt:,} cycles in {len(given)} calls"), ("cycles a token", cycles)]
    if done.tokens_per_second and done.first_milliseconds:
        begun = f"{done.first_milliseconds:.2f} ms to the first token"
        facts.append(("speed", f"{done.tokens_per_second:,.1f} tokens/s, {begun}"))
    return [*facts, ("states", states_described(done.build))]


def _judged(done: Generation) -> str:
    if not done.compared:
        return "not compared"
    return done.difference or "equal: the integer module draws the same tokens by the same scores"
