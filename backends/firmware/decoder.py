"""Models that generate: a token in, the scores of the next one out, and what they keep in between; several tokens in,
where a method takes a part of the prompt at once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.emit_header import identifier
from tosaic.backends.firmware.kit import filled
from tosaic.backends.firmware.program import CallSequence, Interface
from tosaic.support.names import Name

FOLDER = "generate"
"""The folder of a kit with what generates; its C is compiled into the application."""

SAMPLER = ("tosaic_sampler.h", "tosaic_sampler.c")
TOKENIZER = ("tosaic_tokenizer.h", "tosaic_tokenizer.c")
_PLACES = ("place", "pos", "position", "input_pos", "start_pos", "cache_position", "position_ids", "index", "step")

_OF_THE_LOOP = {"decoder", "generate", "restart", "step"}
"""What the loop defines behind the model's name, so that no method may be called so."""

_INDICES = (np.dtype(np.int32), np.dtype(np.int64))
_SCORES = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.float32))


@dataclass(frozen=True)
class Prefill:
    """A method that takes several tokens in a row.

    Args:
        method: its name.
        token: the input that takes them.
        place: the one that takes their places, or that of the first; None where the model counts by itself.
        tokens: how many it takes.
        places: how many places it takes.
    """

    method: Name
    token: Name
    place: Name | None
    tokens: int
    places: int


@dataclass(frozen=True)
class TokenDecoder:
    """How a model generates.

    Args:
        token: the input that takes a token.
        place: the one that takes its place in the context; None where the model counts by itself.
        tokens: how many there are: the output `scores` has a score for each.
        places: how many tokens the context holds; None where nothing limits it.
        scores: the number of an output.
        method: the method that takes a token; None where the model is one.
        prefill: what takes several of the prompt at once; None where nothing does.
    """

    token: Name
    place: Name | None
    tokens: int
    places: int | None
    scores: int = 0
    method: Name | None = None
    prefill: Prefill | None = None


def decoder_of(program: CallSequence, places: int | None) -> TokenDecoder | None:
    """How a model generates; None where it does not.

    One that does takes one integer, or two of which one is a place by its name or by coming second. It keeps states,
    and its first output has more than one element, all along its last axis. Where a model has methods, the first such
    method generates. Another one, that takes several integers in a row and their places, takes a prompt.
    """
    if not program.states or _OF_THE_LOOP & {method.name for method in program.methods}:
        return None
    sides: list[tuple[str | None, Sequence[Interface], Sequence[Interface]]] = [
        (each.name, each.inputs, each.outputs) for each in program.methods
    ]
    for method, inputs, outputs in sides or [(None, program.inputs, program.outputs)]:
        if not outputs or (roles := _roles(program, inputs, method)) is None or _size(program, roles[0]) != 1:
            continue
        scores = program.buffers[outputs[0].buffer]
        *outer, tokens = scores.shape or (1,)
        if tokens < 2 or prod(outer) != 1 or scores.dtype not in _SCORES:
            continue
        token, place = roles
        number, prefill = program.outputs.index(outputs[0]), _prefill(program, place is not None)
        return TokenDecoder(token.name, place.name if place else None, tokens, places, number, method, prefill)
    return None


def _prefill(program: CallSequence, counts: bool) -> Prefill | None:
    """The method that takes most tokens at once; `counts` says whether they come with places."""
    found = []
    for method in program.methods:
        roles = _roles(program, method.inputs, method.name)
        if roles is None or bool(roles[1]) != counts:
            continue
        (token, place), size = roles, _size(program, roles[0])
        places = _size(program, place) if place else 0
        if size > 1 and places in (0, 1, size):
            found.append(Prefill(method.name, token.name, place.name if place else None, size, places))
    return max(found, key=lambda each: each.tokens, default=None)


def _roles(
    program: CallSequence, inputs: Sequence[Interface], method: str | None
) -> tuple[Interface, Interface | None] | None:
    """What takes tokens, and what takes places; None where inputs are something else."""
    if not 1 <= len(inputs) <= 2 or not all(_is_index(program, each) for each in inputs):
        return None
    if len(inputs) == 1:
        return inputs[0], None
    prefix = f"{method}_" if method else ""
    place = next((each for each in inputs if each.name.removeprefix(prefix).lower() in _PLACES), inputs[1])
    if _size(program, place) > 1 and len({_size(program, each) for each in inputs}) > 1:
        return None
    return next(each for each in inputs if each is not place), place


def _size(program: CallSequence, interface: Interface) -> int:
    return prod(program.buffers[interface.buffer].shape)


def _is_index(program: CallSequence, interface: Interface) -> bool:
    return interface.quantization is None and program.buffers[interface.buffer].dtype in _INDICES


def write_generation(kit: Path, name: str, program: CallSequence, places: int | None) -> TokenDecoder | None:
    """Write the sources of a loop that generates, of a sampler and of a tokenizer into a kit, if the model does."""
    decoder = decoder_of(program, places)
    if decoder is None:
        return None
    folder = kit / FOLDER
    folder.mkdir()
    for source in (*SAMPLER, *TOKENIZER):
        shutil.copy(toolchain.SOURCES / "kit" / source, folder)
    place = identifier(decoder.place or "")
    fields = {
        "name": name,
        "NAME": name.upper(),
        "run": decoder.method or "invoke",
        "scores": str(decoder.scores),
        "prefill": _prefill_text(name, decoder),
        "begun": "prefill(self, prompt, count, &status)" if decoder.prefill else "0",
        "token": identifier(decoder.token),
        "full": f"    if (self->place >= {decoder.places}u)\n        return TOSAIC_FULL;\n" if decoder.places else "",
        "place": f"    *({name}_input_{place} *)self->model.inputs[{name.upper()}_INPUT_{place}] = "
        f"({name}_input_{place})self->place;\n"
        if place
        else "",
    }
    for end in "hc":
        (folder / f"{name}_generate.{end}").write_text(filled(f"generate.{end}", fields))
    return decoder


def _prefill_text(name: str, decoder: TokenDecoder) -> str:
    """The function that runs a prompt by the tokens that a method takes at once, but for the last one."""
    if (prefill := decoder.prefill) is None:
        return ""
    token, place = identifier(prefill.token), identifier(prefill.place or "")
    fits = f" && self->place + {prefill.tokens}u <= {decoder.places}u" if decoder.places else ""
    places = f"""\
        {name}_input_{place} *places = self->model.inputs[{name.upper()}_INPUT_{place}];
        for (uint32_t i = 0; i < {prefill.places}u; i++)
            places[i] = ({name}_input_{place})(self->place + i);
""" if place else ""  # fmt: skip
    return f"""
/* Runs the prompt, {prefill.tokens} tokens at a time, as far as they go; at least one is left. How many it has run. */
static uint32_t prefill({name}_decoder *self, const int32_t *prompt, uint32_t count, int *status)
{{
    uint32_t done = 0;
    while (!*status && count - done > {prefill.tokens}u{fits}) {{
        {name}_input_{token} *tokens = self->model.inputs[{name.upper()}_INPUT_{token}];
        for (uint32_t i = 0; i < {prefill.tokens}u; i++)
            tokens[i] = prompt[done + i];
{places}\
        *status = {name}_{prefill.method}(&self->model);
        self->place += {prefill.tokens}u;
        done += {prefill.tokens}u;
    }}
    return done;
}}
"""
