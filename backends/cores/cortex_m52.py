"""The Cortex-M52 with vectors of integers and floats.

LLVM schedules for it by its model of the Cortex-M55, whose cycles these are.
"""

from dataclasses import replace

from tosaic.backends.cores.cortex_m55 import CORE as M55

CORE = replace(M55, name="cortex-m52")
