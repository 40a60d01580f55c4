"""A functional model of the Ethos-U: runs the very command streams and compressed weights that Vela emits."""

from tosaic.backends.ethos_u.emulator.machine import ExecutedOp, ExecutionReport, execute

__all__ = ["ExecutedOp", "ExecutionReport", "execute"]
