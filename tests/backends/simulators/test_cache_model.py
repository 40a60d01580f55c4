"""The caches of the plugin against an independent model: equal lines filled and written back on random accesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tosaic.backends.target import Cache, Memory

COUNT = 4000
BASES = {"sram": 0x2100_0000, "ddr": 0x6000_0000}
PROGRAM = """
int main(void) {
    uint32_t state = %(seed)du;
    TOSAIC_REGION_BEGIN();
    for (int i = 0; i < %(count)d; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t offset = (state >> 8) %% %(reach)du, kind = state >> 29;
        uint32_t at = (kind & 1 ? 0x21000000u : 0x60000000u) + offset;
        if (kind & 2) {
            if (kind & 4) *(volatile uint8_t *)at = 0; else *(volatile uint32_t *)(at & ~3u) = 0;
        } else {
            if (kind & 4) (void)*(volatile uint8_t *)at; else (void)*(volatile uint32_t *)(at & ~3u);
        }
    }
    TOSAIC_REGION_END();
    return 0;
}"""
GEOMETRIES = {
    "cortex-m55": Cache("dcache", 32768, 4, 32),
    "small": Cache("dcache", 1024, 4, 32),
    "direct": Cache("dcache", 2048, 1, 16),
    "fully associative": Cache("dcache", 512, 16, 32),
    "oldest": Cache("dcache", 1024, 4, 32, policy="round-robin"),
    "random": Cache("dcache", 1024, 4, 32, policy="random"),
    "through": Cache("dcache", 1024, 2, 32, writes="through"),
    "word": Cache("dcache", 8, 1, 8, writes="through"),
}


def accesses(seed: int, reach: int) -> Iterator[tuple[int, bool]]:
    """(address, whether it is written) of what the program accesses."""
    state = seed
    for _ in range(COUNT):
        state = (state * 1664525 + 1013904223) % 2**32
        offset, kind = (state >> 8) % reach, state >> 29
        at = (BASES["sram"] if kind & 1 else BASES["ddr"]) + offset
        yield (at if kind & 4 else at & ~3), bool(kind & 2)


def expected(cache: Cache, seed: int, reach: int) -> dict[str, tuple[int, int]]:
    """Lines filled and written back, by memory, of a cache whose sets are lists of lines, the newest first."""
    sets: dict[int, list[list]] = {}
    count, number = cache.size // cache.line // cache.ways, 1
    filled, written = Counter[str](), Counter[str]()
    for at, store in accesses(seed, reach):
        line = at // cache.line
        lines = sets.setdefault(line % count, [])
        found = next((each for each in lines if each[0] == line), None)
        if found:
            found[1] |= store and cache.writes == "back"
            if cache.policy == "lru":
                lines.insert(0, lines.pop(lines.index(found)))
        elif not store or cache.writes == "back":
            filled[memory_of(at)] += 1
            if len(lines) == cache.ways:
                place = -1
                if cache.policy == "random":
                    number = (number * 1664525 + 1013904223) % 2**32
                    place = number * cache.ways >> 32
                old, dirty = lines.pop(place)
                written[memory_of(old * cache.line)] += dirty
            lines.insert(0, [line, store and cache.writes == "back"])
    return {name: (filled[name], written[name]) for name in BASES}


def memory_of(address: int) -> str:
    return "sram" if address < BASES["ddr"] else "ddr"


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("seed", [1, 20261125])
def test_caches_fill_and_write_back_what_an_independent_model_does(qemu, build, name, seed):
    cache, reach = GEOMETRIES[name], 3 * GEOMETRIES[name].size
    elf = build(PROGRAM % {"seed": seed, "count": COUNT, "reach": reach})
    memories = [Memory(memory, base, 1 << 20, caches=(cache,)) for memory, base in BASES.items()]
    (cost,) = qemu.run(elf, {}, memories=memories).costs
    found = {each.memory: (each.filled, each.written_back) for each in cost.traffic}
    assert found == expected(cache, seed, reach)
    assert sum(filled for filled, _ in found.values()) > 100


def test_a_model_that_replaces_another_line_is_told_apart():
    """The patterns tell the policies apart, so that the test above can fail."""
    counts = {name: expected(GEOMETRIES[name], 1, 3072) for name in ("small", "oldest", "random")}
    assert len({str(each) for each in counts.values()}) == 3
