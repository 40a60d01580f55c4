"""ATen to TOSA. How an op is lowered and how it is quantized is declared in one place:

    @lowers(aten.silu.default, quantized=OneToOne(), pointwise=True)
    def silu(b: Builder, node: Node, x: ir.Value) -> ir.Value:
        return b.pointwise("mul", x, b.pointwise("sigmoid", x))

A file here, or a module that an installed package names in the entry point group `tosaic.lowerings`.
"""
