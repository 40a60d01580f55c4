"""Language models of Hugging Face's transformers, exported as it exports them with a static cache."""

from __future__ import annotations

import warnings

import pytest
import torch
import transformers
from torch.export import ExportedProgram
from transformers.integrations.executorch import convert_and_export_with_cache

import tosaic
from tosaic.frontend import capture

_PLACES = 12
_SIZES = {
    "vocab_size": 24, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": _PLACES, "tie_word_embeddings": True,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_CALLS = [(torch.tensor([[place * 7 % 24]]), torch.tensor([place])) for place in range(_PLACES)]


def _exported(config: str, **sizes) -> ExportedProgram:
    torch.manual_seed(0)
    made = getattr(transformers, config)(**_SIZES, **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_config(made).eval().requires_grad_(False)
        model.generation_config = transformers.GenerationConfig(
            use_cache=True,
            cache_implementation="static",
            max_length=_PLACES,
            cache_config={"batch_size": 1, "max_cache_len": _PLACES},
        )
        return convert_and_export_with_cache(model, *_CALLS[0])


def test_a_llama_generates_on_the_board():
    build = tosaic.compile(_exported("LlamaConfig"), _CALLS[0], target="cortex-m55", calibration=_CALLS)
    decoder = build.manifest.firmware.decoder
    assert decoder is not None
    assert (decoder.token, decoder.place, decoder.places) == ("input_ids", "cache_position", _PLACES)
    assert not [advice for advice in build.manifest.warnings if "stays float32" in str(advice)]
    done = build.generate([3, 5], 6)
    assert len(done.tokens) == 6 and not done.difference
    assert min(output.sqnr_db or 99 for output in build.manifest.accuracy) > 20


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ("Qwen2Config", {}),
        ("Qwen3Config", {"head_dim": 8}),
        ("SmolLM3Config", {}),
        ("Gemma3TextConfig", {"head_dim": 8}),
    ],
)
def test_a_cache_is_states(config, sizes):
    captured = capture(_exported(config, **sizes), _CALLS, _CALLS[0])
    assert [tuple(state.initial.shape) for state in captured.states] == [(1, 1, _PLACES, 8)] * 2
