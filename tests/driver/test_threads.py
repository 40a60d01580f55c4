"""What is compiled does not depend on PyTorch's number of threads."""

from collections.abc import Iterator

import pytest
import torch

from tosaic.compiler.middle import lower_model
from tosaic.compiler.options import CompileOptions
from tosaic.target_files.ready import find_target
from tosaic.terminal.progress import Stations
from tosaic.zoo.seeded import images


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_integers_of_a_small_network_are_the_same():
    """Its layers multiply one row by many weights, which PyTorch shares among threads."""

    def meaning(threads: int) -> bytes:
        torch.set_num_threads(threads)
        return lower_model(CompileOptions("zoo:autoencoder", find_target("cortex-m55")), Stations()).meaning

    assert meaning(1) == meaning(2)


def test_made_images_are_the_same():
    def made(threads: int) -> torch.Tensor:
        torch.set_num_threads(threads)
        return torch.cat([image for (image,) in images(9, 4, 3, 96, 96)])

    assert made(1).equal(made(2))
