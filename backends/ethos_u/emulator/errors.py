"""What the emulator reports: an NPU program that would misbehave on hardware, or that is not one."""

from __future__ import annotations

from tosaic.support.errors import SimulatorError


class EmulationError(SimulatorError):
    """A command stream that cannot be executed as written.

    Args:
        offset: byte offset of the command in the command words, -1 where it is not known.
        command: the command, e.g. `NPU_OP_CONV`.
    """

    def __init__(self, what: str, *, offset: int = -1, command: str = "", why: str = "", hint: str = "") -> None:
        self.offset, self.command = offset, command
        where = f"{command} at byte {offset} of the command stream" if offset >= 0 else ""
        super().__init__(what, where=where, why=why, hint=hint)

    def at(self, offset: int, command: str) -> EmulationError:
        """The same error, placed at a command unless it has a place."""
        if self.offset >= 0:
            return self
        return EmulationError(self.what, offset=offset, command=command, why=self.why, hint=self.hint)
