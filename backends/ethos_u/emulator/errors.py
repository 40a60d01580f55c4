"""What the emulator reports: an NPU program that would misbehave on hardware, or that is not one."""

from __future__ import annotations

from tosaic.support.errors import SimulatorError


class EmulationError(SimulatorError):
    """A command stream that cannot be executed as written.

    Args:
        offset: byte offset of the command in the command words, -1 where there is none.
        command: the command, e.g. `NPU_OP_CONV`.
    """

    def __init__(self, what: str, *, offset: int = -1, command: str = "", why: str = "", hint: str = "") -> None:
        self.offset, self.command = offset, command
        where = f"{command} at byte {offset} of the command stream" if offset >= 0 else ""
        super().__init__(what, where=where, why=why, hint=hint)
