"""issue(stage, priority, window)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.backends.cortex_m.program.list_scheduler import PRIORITIES, Issue
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class IssueBy(NestPrimitive):
    """`issue(stage, priority, window)`: list scheduling of a stage's block: what goes first of the instructions that
    can start at once, of so many that stand next."""

    name = "issue"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, priority, window = str(arguments[0]), str(arguments[1]), int(arguments[2])
        if not any(loop.how == "turn" for loop in nest.stages[stage]):
            raise BackendError(f"`{stage}` has no hardware loop, whose block is ordered", why=f"the nest is\n{nest}")
        if priority not in PRIORITIES or window < 1:
            raise BackendError(f"no order is by `{priority}` of {window}", why=f"there are {', '.join(PRIORITIES)}")
        return nest._replace(issued={**nest.issued, stage: Issue(priority, window)})
