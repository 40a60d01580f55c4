"""Schedules given by hand, for kernels by name: what `compile --schedule` reads, and a build folder holds.

A kernel is named as in the manifest, `[cpu_2_conv2d]`; or all of a task are, `[conv2d+rescale 1x25x5x64]`. Its steps
follow, one a line. Where several families have a program for it, `[cpu_9_conv2d: pool]` says whose the steps rewrite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tosaic.backends.cortex_m.program.schedule import Step, applied, parse_steps
from tosaic.support.errors import BackendError, Error, nearest

if TYPE_CHECKING:
    from tosaic.backends.cortex_m.task import KernelTask

FILE = "schedules.txt"
"""The file of a build folder that holds the schedules of its kernels."""
_HEADER = re.compile(r"\[([^:\]]+)(?::([^:\]]+))?\]")


class NumberedStep(NamedTuple):
    """A step, and the line that it stands in."""

    line: int
    step: Step


@dataclass(frozen=True)
class Section:
    """The schedule of a kernel.

    Args:
        name: of the kernel, or of all kernels of a task.
        family: whose program the steps rewrite; empty for the first that has one.
        line: of its header.
    """

    name: str
    family: str
    line: int
    steps: tuple[NumberedStep, ...]


@dataclass(frozen=True)
class Schedules:
    """Schedules by hand; none by default.

    Args:
        file: what messages and the manifest call it.
    """

    file: str = ""
    sections: tuple[Section, ...] = ()

    @staticmethod
    def read(file: Path) -> Schedules:
        """The schedules of a file.

        Raises:
            Error: it cannot be read, or a line is neither header nor step.
        """
        try:
            return Schedules.parse(file.read_text(), str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"cannot read the schedules `{file}`", why=str(error)) from None

    @staticmethod
    def parse(text: str, file: str = "schedules") -> Schedules:
        """Sections: the name of a kernel in brackets, then its steps, one a line. `#` begins a comment.

        Raises:
            Error: a line is neither header nor step, or a name has two sections.
        """
        found = dict[str, Section]()
        section: Section | None = None
        for number, line in enumerate(text.splitlines(), 1):
            where, line = f"{file}:{number}", line.partition("#")[0].strip()
            if not line:
                continue
            if header := _HEADER.fullmatch(line):
                section = Section(header[1].strip(), (header[2] or "").strip(), number, ())
                if section.name in found:
                    why = f"the first one begins in line {found[section.name].line}"
                    raise Error(f"`{section.name}` has two schedules", where=where, why=why)
            elif section is None:
                raise Error(f"`{line}` belongs to no kernel", where=where, hint="begin with a line [KERNEL]")
            else:
                section = replace(section, steps=(*section.steps, NumberedStep(number, _step_of(line, where))))
            found[section.name] = section
        return Schedules(file, tuple(found.values()))

    def given_to(self, tasks: Mapping[str, KernelTask]) -> dict[str, KernelTask]:
        """The tasks of a build's kernels by name, with their schedules. A kernel's own goes before that of its task.

        Raises:
            Error: there is no such kernel, its family has no program, or a step is not legal.
        """
        sections = {section.name: section for section in self.sections}
        known = {*tasks, *(task.name for task in tasks.values())}
        for section in self.sections:
            if section.name not in known:
                raise Error(
                    f"there is no kernel `{section.name}`",
                    where=f"{self.file}:{section.line}",
                    why=f"the kernels of the CPU are {', '.join(f'{n} ({task.name})' for n, task in tasks.items())}",
                )
        wanted = {name: sections.get(name, sections.get(task.name)) for name, task in tasks.items()}
        given = {name: self._given(name, tasks[name], one) for name, one in wanted.items() if one is not None}
        return {**tasks, **given}

    def _given(self, name: str, task: KernelTask, section: Section) -> KernelTask:
        """A task with the steps of a section, each of which is legal."""
        begins = f"{self.file}:{section.line}, the schedule of `{name}`"
        steps = [step for _, step in section.steps]
        try:
            algorithms = task.algorithms(steps)
        except BackendError as error:
            raise Error(error.what, where=begins, why=error.why) from None
        family = section.family or next(iter(algorithms))
        if family not in algorithms:
            raise Error(f"`{family}` has no program for it", where=begins, hint=nearest(family, algorithms))
        program = algorithms[family].program
        for line, step in section.steps:
            try:
                program = applied(program, step)
            except Error as error:
                where = f"{self.file}:{line}, the schedule of `{name}`"
                raise Error(f"`{step}` is not legal here", where=where, why=error.what, hint=error.hint) from None
        given = task.stepped(steps, family)
        try:
            given.generate(given.default())
        except BackendError as error:
            why = ": ".join(filter(None, (error.what, error.why)))
            raise Error(f"the steps make no kernel for a {task.core.name}", where=begins, why=why) from None
        return given


def _step_of(line: str, where: str) -> Step:
    """The step of a line.

    Raises:
        Error: it is none.
    """
    try:
        (step,) = parse_steps(line)
    except BackendError as error:
        raise Error(f"`{line}` is neither a step nor a [KERNEL]", where=where, why=error.why) from None
    return step
