"""Division of a module between NPU and CPU, and outlining of what each runs."""

from tosaic.passes.place.placement import HOP_COST, check_placed, everything_on_cpu, place

__all__ = ["HOP_COST", "check_placed", "everything_on_cpu", "place"]
