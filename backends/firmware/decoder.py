"""Models that generate: a token in, the scores of the next one out, and what they keep in between."""

from __future__ import annotations

import shutil
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

_INDICES = (np.dtype(np.int32), np.dtype(np.int64))
_SCORES = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.float32))


@dataclass(frozen=True)
class TokenDecoder:
    """How a model generates.

    Args:
        token: the input that takes a token.
        place: the one that takes its place in the context; empty where the model counts by itself.
        tokens: how many there are: the first output has a score for each.
        places: how many tokens the context holds; None where nothing limits it.
    """

    token: Name
    place: Name
    tokens: int
    places: int | None


def decoder_of(program: CallSequence, places: int | None) -> TokenDecoder | None:
    """How a model generates; None where it does not.

    One that does takes one integer, or two of which one is a place by its name or by coming second. It keeps states,
    and its first output has more than one element, all along its last axis.
    """
    shapes = [program.buffers[each.buffer].shape for each in program.inputs]
    if not program.states or not program.outputs or not 1 <= len(shapes) <= 2 or any(map(_several, shapes)):
        return None
    if not all(_is_index(program, each) for each in program.inputs):
        return None
    scores = program.buffers[program.outputs[0].buffer]
    *outer, tokens = scores.shape or (1,)
    if tokens < 2 or prod(outer) != 1 or scores.dtype not in _SCORES:
        return None
    names = [each.name for each in program.inputs]
    place = next((name for name in names if name.lower() in _PLACES), names[1]) if len(names) == 2 else ""
    return TokenDecoder(next(name for name in names if name != place), place, tokens, places)


def _several(shape: tuple[int, ...]) -> bool:
    return prod(shape) != 1


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
    place = identifier(decoder.place)
    fields = {
        "name": name,
        "NAME": name.upper(),
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
