"""Train the language model further with weights of four bits: `python examples/story/train_int4.py`, some minutes.

What the model multiplies by is rounded, a scale for 32 inputs of an output, and gradients go to the weights before
(Bengio et al. 2013); so is the table of embeddings, which the head reads, too. It writes `weights_int4.npz`.
"""

from __future__ import annotations

import numpy as np
import torch
from story import HELD_BACK, TOKENIZER, WEIGHTS_INT4, DecoderBlock, LanguageModel, net
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils import parametrize
from train import perplexity, prose, stored, train

GROUP, STEPS, RATE = 32, 600, 1e-3
_LEVELS = 7.25
"""Steps from 0 to the greatest weight of a group: between those to 7 and to -8."""


class FourBits(nn.Module):
    """Weights [outputs, inputs], each a step of its group times -8 to 7."""

    def forward(self, weight: Tensor) -> Tensor:
        groups = weight.unflatten(1, (-1, GROUP))
        step = groups.detach().abs().amax(-1, keepdim=True) / _LEVELS
        rounded = ((groups / step).round().clamp(-8, 7) * step).flatten(1)
        return weight + (rounded - weight).detach()


def with_plain_norms(module: LanguageModel) -> None:
    """What norms multiply by becomes a part of the matrices behind, as it does in a build."""
    for block in module.blocks:
        assert isinstance(block, DecoderBlock)
        attention = block.attention
        for norm, readers in (
            (block.n1, (attention.wq, attention.wk, attention.wv)),
            (block.n2, (block.w1, block.w3)),
        ):
            for reader in readers:
                reader.weight.data *= norm.weight.data
            norm.weight.data.fill_(1.0)
            norm.weight.requires_grad_(False)


def main() -> None:
    torch.manual_seed(0)
    module, held = net()[0], HELD_BACK.read_text()
    assert isinstance(module, LanguageModel)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    texts = [text for text in prose() if text not in held]
    order = torch.randperm(len(texts)).tolist()
    tokens = torch.tensor(tokenizer.encode("\n".join(texts[index] for index in order)).ids)
    with_plain_norms(module)
    matrices = [one for one in module.modules() if isinstance(one, nn.Linear | nn.Embedding)]
    for matrix in matrices:
        parametrize.register_parametrization(matrix, "weight", FourBits())
    train(module, tokens, STEPS, RATE, weight_decay=0.0, warm_up=0.1)
    for matrix in matrices:
        parametrize.remove_parametrizations(matrix, "weight")
    np.savez_compressed(WEIGHTS_INT4, **stored(module))
    print(f"held-back perplexity: {perplexity(module, tokenizer.encode(held).ids):.2f}")


if __name__ == "__main__":
    main()
