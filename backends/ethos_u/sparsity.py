"""Which weights an Ethos-U85 computes as 2:4: of each four neighbors along the input channels two are 0."""

from __future__ import annotations

import numpy as np

_GROUP, _ZEROS, _LEAST = 4, 2, -128


def why_not_2_of_4(weights: np.ndarray) -> str:
    """Why Vela does not take a convolution's weights (int8, output channels first, input channels last) as 2:4; empty
    where it does. The conditions are those of its scheduler, `EncodeBestWeightFormat`."""
    if (weights == _LEAST).any():
        return f"a weight is {_LEAST}"
    missing = -weights.shape[-1] % _GROUP  # which are zeros
    groups = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)]).reshape(-1, _GROUP)
    full = int(((groups == 0).sum(1) < _ZEROS).sum())
    return f"{full / len(groups):.1%} of its groups of {_GROUP} have fewer than {_ZEROS} zeros" if full else ""
