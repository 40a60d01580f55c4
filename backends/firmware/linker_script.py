"""The linker script of a bare-metal image, from the target's memories."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.target import Layout, Memory

CONSTANTS_SECTION = ".rodata.tosaic"
"""Input section prefix of weights and command streams; it goes to the target's constants memory. Other linker scripts
place it with read-only data, and arenas with .bss."""


def arena_section(memory: Memory) -> str:
    """The input section of the arena's share in `memory`; it takes no room in the image."""
    return f".bss.tosaic.{memory.name}"


def code_in_constants(layout: Layout) -> Layout:
    """The same layout with the code beside the constants, for code that does not fit; the vectors stay."""
    return replace(layout, code=replace(layout.constants, name=layout.code.name), vectors=layout.vectors or layout.code)


def linker_script(layout: Layout) -> str:
    """The script of GNU ld and lld. The stack lies above C data, at the end of their memory; data is loaded in place.

    NOPs fill what is left between functions.
    """
    vectors = layout.vectors or layout.code
    memories = {m.base: m for m in (vectors, layout.code, layout.stack, *layout.arena, layout.constants)}
    names = {base: f"M{base:08x}" for base in memories}
    regions = "\n".join(
        f"  {names[base]} (rwx) : ORIGIN = {base:#010x}, LENGTH = {memory.size:#x}  /* {memory.name} */"
        for base, memory in sorted(memories.items())
    )
    arenas = "\n".join(
        f"  .tosaic.{memory.name} (NOLOAD) : {{ . = ALIGN(16); *({arena_section(memory)}) }} > {names[memory.base]}"
        for memory in layout.arena
    )
    code, data, constants = names[layout.code.base], names[layout.stack.base], names[layout.constants.base]
    return f"""\
MEMORY {{
{regions}
}}
SECTIONS {{
  .vectors : {{ KEEP(*(.vectors)) }} > {names[vectors.base]}
  .tosaic.constants : {{ . = ALIGN(16); *({CONSTANTS_SECTION} {CONSTANTS_SECTION}.*) }} > {constants}
  .text : {{ . = ALIGN(16); *(.text .text.*) *(.rodata .rodata.*) . = ALIGN(8); }} > {code} =0x00bf00bf
  .ARM.extab : {{ *(.ARM.extab*) }} > {code}
  .ARM.exidx : {{ __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; }} > {code}
  .data : {{ . = ALIGN(16); *(.data .data.*) . = ALIGN(16); }} > {data}
{arenas}
  .bss (NOLOAD) : {{
    . = ALIGN(16);
    __bss_start__ = .;
    *(.bss .bss.* COMMON)
    . = ALIGN(16);
    __bss_end__ = .;
  }} > {data}
  end = .;
  __stack = ORIGIN({data}) + LENGTH({data});
}}
"""
