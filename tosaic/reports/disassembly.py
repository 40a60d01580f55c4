"""`tosaic npu disasm`: the command streams of a build, op by op."""

from __future__ import annotations

from tosaic.backends.npus import family_of
from tosaic.builds.build import BuildFolder
from tosaic.builds.streams import STREAMS, source_lines
from tosaic.support.errors import Error
from tosaic.support.functions import functions_on


def disassemble_build(build: BuildFolder) -> dict[str, str]:
    """The command stream of each region of a build, op by op, with the user's line behind each.

    Raises:
        Error: the build has no NPU region, or its files are damaged.
    """
    if not build.manifest.regions:
        raise Error(f"`{build.folder}` has no NPU region", why=f"its target is {build.manifest.target.name}")
    functions = functions_on("npu", build.placed)
    accelerator = build.manifest.target.accelerator or ""
    listings = {}
    for record in build.manifest.regions:
        file = build.folder / STREAMS / f"{record.name}.cop1"
        try:
            stream = file.read_bytes()
        except OSError as error:
            raise Error(f"cannot read `{file}`", why=str(error), hint="compile again") from None
        listings[record.name] = family_of(accelerator).disassemble(
            stream, accelerator, record.ops, source_lines(functions[record.name])
        )
    return listings
