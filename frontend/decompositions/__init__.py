"""ATen ops written with others, in PyTorch: where torch has no decomposition, or one that loses accuracy.

    @decomposes(aten.log1p.default)
    def _log1p(x: Tensor) -> Tensor:
        return torch.log(x + 1.0)

How the result is quantized follows from the lowerings of the ops that it is made of.
"""
