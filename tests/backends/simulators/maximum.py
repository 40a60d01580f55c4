"""A task with one hand-written kernel per variant, good ones and bad ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule, Space, Variant

MODULE = """
func.func @main(%a: tensor<1x100xi32>, %b: tensor<1x100xi32>) -> tensor<1x100xi32> {
  %0 = tosa.maximum %a, %b : (tensor<1x100xi32>, tensor<1x100xi32>) -> tensor<1x100xi32>
  return %0 : tensor<1x100xi32>
}"""
BODIES = {
    "good": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i];",
    "table": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i]; out[3] += params[1] - 7;",
    "last": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i]; out[99]++;",
    "nothing": "",
    "beyond": "for (int i = 0; i < 101; i++) out[i] = a[i % 100] > b[i % 100] ? a[i % 100] : b[i % 100];",
    "scratch": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i]; scratch[4] = 0;",
    "before": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i]; out[-1] = 1;",
    "below": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i]; scratch[-8] = 1;",
    "spoiled": "for (int i = 0; i < 100; i++) out[i] = a[i] > b[i] ? a[i] : b[i]; ((int *)b)[7]++;",
    "crash": "*(volatile int *)0xf0000000 = 1;",
    "long": "for (int r = 0; r < 5200; r++) for (int i = 0; i < 100; i++)"
    " ((volatile int *)out)[i] = a[i] > b[i] ? a[i] : b[i];",
    "hang": "for (;;) *(volatile int *)scratch = 1;",
    "broken": "this is not C",
    "unlinkable": "extern void nowhere(void); nowhere();",
}


@dataclass(frozen=True)
class MaximumTask:
    """A task with one hand-written kernel per variant."""

    key: str = "maximum 100"
    name: str = "maximum"
    module: str = MODULE
    inputs: tuple[bytes, ...] = ()
    memories: tuple[int, ...] = ()
    over: tuple[Overlap, ...] = ()

    @property
    def space(self) -> Space:
        return Space(tuple(Variant(name) for name in BODIES))

    def code(self, schedule: Schedule) -> str:
        return ""

    def features(self, schedule: Schedule) -> dict[str, float]:
        return {}

    def generate(self, schedule: Schedule) -> KernelSource:
        if schedule.variant == "refused":
            raise BackendError("no such kernel")
        text = (
            f"void maximum_{schedule.variant}(const int *a, const int *b, int *out, const int *params, int *scratch)"
            f"{{ (void)params; (void)scratch; {BODIES[schedule.variant]} }}"
        )
        params = np.array([5, 7], np.int32).tobytes()
        return KernelSource(f"maximum_{schedule.variant}", "c", text, params, scratch_bytes=16)
