"""Train the language model on the prose of this project: `python examples/story/train.py`, some minutes on a core.

It writes `tokenizer.json`, `weights.npz` and `held_back.txt`, and prints the perplexity of the text that it held back.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from story import CALIBRATION, HELD_BACK, STORY, TOKENIZER, WEIGHTS, DecoderBlock, LanguageModel, turned

ROOT = Path(__file__).parents[2]
BATCH, STEPS, RATE = 32, 4000, 4e-3
HELD_BACK_CHARACTERS = 6000


def prose() -> list[str]:
    """The sentences of documents and of docstrings, each line of a paragraph joined to the next."""
    files = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md"))
    texts = [re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL) for file in files]
    for folder in ("tosaic", "backends", "frontend", "passes", "support", "tuner"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            nodes = ast.walk(ast.parse(file.read_text()))
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
            texts += [text for node in nodes if isinstance(node, kinds) and (text := ast.get_docstring(node))]
    paragraphs = [
        re.sub(r"\s+", " ", part).strip() for text in texts for part in re.split(r"\n\s*\n|\n(?=[-*] )", text)
    ]
    kept = (
        part for part in paragraphs if len(part) > 20 and part[0].isalpha() and "|" not in part and "Args:" not in part
    )
    return list(dict.fromkeys(kept))


def trained_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Byte pairs that never cross a space; so a text need not be cut at spaces before it is encoded."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=STORY.tokens, initial_alphabet=alphabet))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def scores(net: LanguageModel, tokens: Tensor) -> Tensor:
    """What the model gives at each place of whole texts, i64[batch, places]: f32[batch, places, tokens]."""
    batch, places = tokens.shape
    x, rotation = net.embedding(tokens), (net.cos[:places], net.sin[:places])
    for block in net.blocks:
        assert isinstance(block, DecoderBlock)
        attention, y = block.attention, block.n1(x)
        shape = attention.shape
        q, k, v = (
            layer(y).view(batch, places, -1, shape.depth).transpose(1, 2)
            for layer in (attention.wq, attention.wk, attention.wv)
        )
        q, k = turned(q, *rotation), turned(k, *rotation)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + attention.wo(seen.transpose(1, 2).reshape(x.shape))
        x = x + block.gated(block.n2(x))
    return net.head(net.norm(x))


def perplexity(net: LanguageModel, tokens: list[int]) -> float:
    """Of a text, cut into contexts."""
    whole = len(tokens) // STORY.places * STORY.places
    rows = torch.tensor(tokens[:whole]).view(-1, STORY.places)
    with torch.no_grad():
        loss = F.cross_entropy(scores(net, rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    return math.exp(loss.item())


def train(net: LanguageModel, tokens: Tensor, steps: int, rate: float, weight_decay: float, warm_up: float) -> None:
    """Steps on random parts of a text; of all, `warm_up` is the share before the greatest rate."""
    parameters = [one for one in net.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=weight_decay, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=warm_up)
    for step in range(steps):
        begins = torch.randint(0, len(tokens) - STORY.places - 1, (BATCH, 1))
        rows = tokens[begins + torch.arange(STORY.places + 1)]
        loss = F.cross_entropy(scores(net, rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: perplexity {math.exp(loss.item()):.2f}", flush=True)


def stored(net: LanguageModel) -> dict[str, np.ndarray]:
    """The weights as a file holds them; those of the head are the table of embeddings."""
    return {name: value.half().numpy() for name, value in net.state_dict().items() if name != "head.weight"}


def main() -> None:
    torch.manual_seed(0)
    texts = prose()
    order = torch.randperm(len(texts)).tolist()
    text = "\n".join(texts[index] for index in order)
    held, known = text[:HELD_BACK_CHARACTERS], text[HELD_BACK_CHARACTERS:]
    tokenizer = trained_tokenizer(known.split("\n"))
    tokens = torch.tensor(tokenizer.encode(known).ids)
    print(f"{len(text):,} characters, {len(tokens):,} tokens")
    net = LanguageModel(STORY)
    torch.nn.init.normal_(net.embedding.weight, std=0.1)
    train(net, tokens, STEPS, RATE, weight_decay=0.1, warm_up=0.05)
    net.eval()
    np.savez_compressed(WEIGHTS, **stored(net), text=tokens[:CALIBRATION].numpy().astype(np.int16))
    TOKENIZER.write_text(json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":"), ensure_ascii=True) + "\n")
    HELD_BACK.write_text(held)
    print(f"held-back perplexity: {perplexity(net, tokenizer.encode(held).ids):.2f}")


if __name__ == "__main__":
    main()
