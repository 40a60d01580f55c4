"""What regions of a compiled file compute by the TOSA flatbuffers that they were made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np

from tosaic.backends.npu import NpuPort, NpuRegion
from tosaic.backends.reference import evaluate
from tosaic.backends.reference.signature import TosaPort, signature
from tosaic.support.errors import BackendError, Error


def tosa_outputs(
    regions: Sequence[NpuRegion], paths: Sequence[Path]
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """The outputs of all regions for the inputs of all, as a function; TOSA's reference model executes it.

    Args:
        paths: a flatbuffer for each region, in order.

    Raises:
        Error: they are more or fewer than regions; one cannot be read, or has other inputs or outputs.
    """
    if len(paths) != len(regions):
        raise Error(f"each of {len(regions)} NPU regions needs a TOSA file", why=f"{len(paths)} are given")
    meanings = [_Meaning(path, region) for path, region in zip(paths, regions, strict=True)]

    def outputs(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        left = iter(inputs)
        return [made for each in meanings for made in each.outputs(list(islice(left, each.takes)))]

    return outputs


class _Meaning:
    """What a region was made of. Its dimensions may be others than those that the delegate knows.

    Attributes:
        takes: how many inputs.
    """

    def __init__(self, path: Path, region: NpuRegion) -> None:
        try:
            self._flatbuffer = path.read_bytes()
            self._inputs, outputs = signature(self._flatbuffer)
        except OSError as error:
            raise Error(f"cannot read `{path}`", why=str(error.strerror)) from error
        except BackendError as error:
            raise Error(f"cannot read `{path}`", why=error.what) from error
        _guard_alike(path, "inputs", self._inputs, region.inputs)
        _guard_alike(path, "outputs", outputs, region.outputs)
        self._made, self.takes = region.outputs, len(self._inputs)

    def outputs(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [array.reshape(port.shape).view(port.dtype) for array, port in zip(inputs, self._inputs, strict=True)]
        made = evaluate(self._flatbuffer, given)
        return [array.reshape(port.shape).view(port.dtype) for array, port in zip(made, self._made, strict=True)]


def _guard_alike(path: Path, what: str, ports: Sequence[TosaPort], of_region: Sequence[NpuPort]) -> None:
    theirs = [port.elements * np.dtype(port.dtype).itemsize for port in ports]
    ours = [prod(port.shape) * np.dtype(port.dtype).itemsize for port in of_region]
    if theirs != ours:
        raise Error(
            f"the region was not made of `{path}`",
            why=f"{what} of {', '.join(map(str, ours))} B are {what} of {', '.join(map(str, theirs))} B there",
        )
