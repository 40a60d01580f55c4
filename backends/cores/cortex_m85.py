"""The Cortex-M85 with vectors of integers and floats.

LLVM's scheduling model of it (`ARMScheduleM85.td`): vectors take two cycles of a pipe as the Cortex-M55's, whose
timings these are, and any two instructions issue together whose pipes are free: two may load or compute, one
multiplies. Branches are predicted.
"""

from dataclasses import replace

from tosaic.backends.cores.cortex_m55 import CORE as M55
from tosaic.backends.cores.cortex_m55 import PIPELINE as M55_PIPELINE

PIPELINE = replace(M55_PIPELINE, width=2, taken_branch=0, loop_entry=0)

CORE = replace(M55, name="cortex-m85", pipeline=PIPELINE)
