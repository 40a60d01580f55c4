"""Imports torchao without its report of missing GPU kernels and PyTorch's of torchao's deprecated calls."""

from __future__ import annotations

import logging

_NOISY = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
_levels = [logger.level for logger in _NOISY]
for _logger in _NOISY:
    _logger.setLevel(logging.ERROR)

import torchao.quantization.pt2e  # noqa: E402, F401  also registers the ops of `torch.ops.quantized_decomposed`

for _logger, _level in zip(_NOISY, _levels, strict=True):
    _logger.setLevel(_level)
