"""What the list scheduler knows of instructions."""

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock
from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.simulators.cycle_model import decoder


def test_gathers_and_scatters_by_distances_in_a_vector_of_c_have_their_timings():
    body = (
        BlockInstruction("vmov.i32", "{b}, #0", ("b",)),
        BlockInstruction("vstrb.16", "{b}, [{out}, {apart}]"),
        BlockInstruction("vldrw.u32", "{v}, [{p}, {apart}]", ("v",)),
        BlockInstruction("vldrb.u8", "{t}, [{p}, {v}]", ("t",), apart=True),
    )
    registers = {"out": "%[p0]", "p": "%[p1]", "apart": "%q[apart__16_64]"}
    _, scatter, gather, table = Dependences(InstructionBlock(body, registers, ("q4", "q5")), decoder(PIPELINE), 0).nodes
    assert scatter.timing.occupancy == 4
    assert not scatter.offsets
    assert gather.timing.latency == 2
    assert table.offsets == {2}
