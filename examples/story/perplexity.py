"""The perplexity of a build of the language model beside PyTorch's: `python examples/story/perplexity.py BUILD`.

The text was held back from the training. The board's scores are equal to the integer module's, to the bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn import functional as F

from tosaic.api import Build

sys.path.insert(0, str(Path(__file__).parent))
from story import STORY, held_back, in_order, net


def surprises(scores: Tensor, tokens: list[int]) -> Tensor:
    """Of each token but the first of each context, by the scores before it: minus the logarithm of its probability.

    Their mean is the logarithm of the perplexity.
    """
    wanted = torch.tensor(tokens).view(-1, STORY.places)[:, 1:]
    given = scores.view(-1, STORY.places, STORY.tokens)[:, :-1]
    return F.cross_entropy(given.flatten(0, 1), wanted.flatten(), reduction="none")


@click.command()
@click.argument("build", type=click.Path(path_type=Path))
@click.option("--contexts", default=4, show_default=True, help="Contexts of text that are run.")
def report(build: Path, contexts: int) -> None:
    """Print both perplexities, and how far they are apart, with the standard error of that."""
    tokens = held_back()[: contexts * STORY.places]
    calls = in_order(tokens, STORY.places)
    module = net()[0]
    with torch.no_grad():
        known = torch.cat([module(*call) for call in calls])
    ran = Build.load(build).run(*(torch.stack(column).numpy() for column in zip(*calls, strict=True)))
    real, board = surprises(known, tokens), surprises(torch.tensor(ran.outputs[0]), tokens)
    more = board - real
    click.echo(
        f"PyTorch {real.mean().exp():.2f}, board {board.mean().exp():.2f}: {more.mean().expm1():+.1%}, "
        f"standard error {more.std() / len(more) ** 0.5:.1%}, exact: {ran.exact}"
    )


if __name__ == "__main__":
    report()
