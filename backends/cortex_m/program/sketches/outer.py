"""The sketch of outer products: schedules of products of floats whose sums of some pixels and channels stay in vectors.

Four channels lie in a vector. Each element of the depth of a pixel is a number that multiplies vectors of weights; a
hardware loop goes over the depth. Names are those of `program.floats`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.outer_numbers import LANES, ChannelBlocks, CopiedWindow, OuterTiles
from tosaic.backends.cortex_m.program.sketches.tiles import ImageTiles, TileRegion, hardware_loop

_BOUNDS = {"low": "m", "upper": "n"}
"""The constants that are bounds, each with a letter for its vector."""


def outer(t: OuterTiles) -> Iterator[str]:
    """The steps of a schedule."""
    if t.kept and len(t.parts) > 1:
        yield f"cut(n, {t.parts[0].channels * t.parts[0].count})"
        yield from (f"distribute({loop})" for loop in "xy")
    found, numbers = list[RegionBlocks](), itertools.count() if t.several else None
    for parts in [[part] for part in t.parts] if t.kept else [t.parts]:
        image = ImageTiles(t.down, t.across, "n", *_loops(parts[0]))
        yield from image.split()
        for region in image.regions(numbers):
            yield from _blocked(parts, region)
            found += [RegionBlocks(part, region) for part in parts]
    for each in reversed(found):
        yield from each.brought()
    if t.window is not None:
        yield "compute_at(P, x)"
        yield from _copied(t.window)
    if t.clamped:
        yield from (f"stage({name}, b, {name}_g, r)" for name in _BOUNDS)
    for each in found:
        yield from each.summed()
    if t.constant:
        yield from _laid_out(t)
    for each in found:
        yield from each.split()
    if t.constant:
        yield from (step for part in t.parts for step in _alternating(part))
    if t.kept:
        yield from (step for part in t.parts for step in _kept(part))
    for each in found:
        yield from each.written_out()
    for each in found:
        yield from each.selected()


def _loops(part: ChannelBlocks) -> tuple[str, str, str]:
    """The loops over rows, columns and channels."""
    behind = "b" * (part.t.kept and part.behind != "")
    return f"y{behind}", f"x{behind}", f"n{part.behind * part.t.kept}"


def _blocked(parts: Sequence[ChannelBlocks], region: TileRegion) -> Iterator[str]:
    """Blocks of channels around the pixels of a tile."""
    n, first, last = f"{region.image.n}{region.names}", parts[0], parts[-1]
    yield from (f"reorder({tile}, {n})" for tile in region.tile)
    if last.behind.endswith("_u"):
        vectors = [part.count * part.vectors for part in parts[:-1]]
        yield f"split({n}, nl{region.names}, {LANES}, early)"
        if len(vectors) > 1:
            yield f"cut({n}, {vectors[0]})"
        yield f"cut({n}{parts[-2].behind}, {vectors[-1]}, u)"
    elif len(parts) > 1:
        yield f"cut({n}, {first.channels * first.count})"


def _alternating(part: ChannelBlocks) -> Iterator[str]:
    """Weights of two elements of the depth side by side where these are loaded together."""
    t, weights = part.t, f"w{part.behind}"
    if not t.pairs or math.prod(t.kernel) * part.vectors == 1 or t.channels == 1:
        return
    blocks = int(not t.several or t.channels > t.width)
    dims = blocks + 1 + (t.depth > 2)
    if t.depth > 2:
        yield f"divide_dim({weights}, {blocks}, 2)"
    inner = 2 + (not t.several or t.vectors > 1)
    order = (*range(dims - 1), *range(dims, dims + inner), dims - 1, dims + inner)
    yield f"reorder_dims({weights}, d{''.join(map(str, order))})"


def _kept(part: ChannelBlocks) -> Iterator[str]:
    """The weights of a block in scratch memory, by copies of vectors."""
    t, behind = part.t, part.behind
    depth = (t.depth // 2, 2) if t.pairs else (t.depth,)
    loops = sum(extent > 1 for extent in (*depth, *t.kernel, part.vectors))
    yield f"stage(w{behind}, n{behind}, wc{behind}, scratch)"
    yield f"stage(w{behind}, wc{behind}{loops - 1}, wv{behind}, q)"
    yield from hardware_loop(f"wc{behind}0", depth[0], False, "mve_fp")


def _laid_out(t: OuterTiles) -> Iterator[str]:
    """Weights in the order of blocks, of the depth, of windows, of vectors."""
    if t.channels == 1:
        return
    if not t.several:
        if len(t.parts) > 1:
            yield "apart(w, w_t, n_t)"
        elif t.depth * t.kernel[0] * t.kernel[1] == 1:
            return
        yield from (f"pack(w{part.behind})" for part in t.parts)
        return
    blocks = [f"divide_dim(w, 0, {t.width})"] if t.channels > t.width else []
    yield from blocks
    vectors = [f"divide_dim(w, {len(blocks)}, {LANES})"] if t.vectors > 1 else []
    yield from vectors
    window = len(blocks) + len(vectors) + 1
    order = (*range(len(blocks)), window + 2, window, window + 1, *range(len(blocks), window))
    yield f"reorder_dims(w, d{''.join(map(str, order))})"


def _copied(window: CopiedWindow) -> Iterator[str]:
    """The copies of windows by vectors: of all of a row, where none of it lies outside of the image."""
    loops = {"c": window.run}
    if window.padded and window.columns > 1:
        yield "assume(ckx, s)"
        loops["c_s"] = window.channels
    if window.dense and window.columns > 1:
        yield "fuse(ckx, c)"
    for loop, run in loops.items():
        iterations, rest = divmod(run, LANES)
        if iterations:
            yield f"split({loop}, l{loop}, {LANES}{', early' * (rest > 0)})"
            yield f"stage(a, {loop}, v{loop}, q)"
            yield from hardware_loop(loop, iterations + (rest > 0), rest > 0, "mve_fp")


@dataclass(frozen=True)
class RegionBlocks:
    """Blocks of channels of a part of the image."""

    part: ChannelBlocks
    region: TileRegion

    @property
    def own(self) -> str:
        """What names of loops and buffers of its sums end in."""
        return self.part.behind + (f"_{self.region.name}" if self.region.name else "")

    @property
    def names(self) -> str:
        """What names of the loops over its results end in."""
        return self.region.names + self.part.behind

    @property
    def around(self) -> str:
        """The innermost loop around a block."""
        return _loops(self.part)[1] if self.part.t.kept else f"n{self.names}"

    @property
    def tile(self) -> list[str]:
        """The loops over the sums of a tile's pixels, outermost first."""
        return [f"s{name}{self.own}" for name, axis, number in reversed(self.region.axes) if axis.tile(number) > 1]

    def brought(self) -> Iterator[str]:
        """Blocks of results, and their sums."""
        part, inside, rest = self.part, f"ni{self.names}", ""
        early = part.t.parts[-1].behind.endswith("_u")
        if not part.behind.endswith("_u"):
            yield f"split(n{self.names}, {inside}, {part.vectors if early else part.channels})"
        if part.t.kept:
            yield from (f"reorder({loop}{self.around[1:]}, n{part.behind})" for loop in "xy")
        yield f"compute_at(S, {self.around}{f', {self.own[1:]}' * (self.own != '')})"
        if part.whole < part.channels:
            rest = f"{inside}_v" if part.whole else inside
            yield from [f"cut({inside}, {part.whole}, v)"] if part.whole else []
        if part.whole:
            yield from [] if early else [f"split({inside}, nl{self.names}, {LANES})"]
            yield from (f"reorder(nl{self.names}, {loop})" for loop in self._results())
        if rest:
            yield from (f"reorder({rest}, {loop})" for loop in self._results("_v" * (part.whole > 0)))

    def _results(self, behind: str = "") -> list[str]:
        """The loops over the pixels of a tile's results, outermost first."""
        own = behind if self.part.t.kept else f"{self.part.behind}{behind}"
        return [f"{loop}{own}" for loop in reversed(self.region.tile)]

    def summed(self) -> Iterator[str]:
        """Sums in registers, added up with the depth outermost."""
        part, own = self.part, self.own
        if part.whole < part.channels:
            step = f"lengthen(S{own}, 3, " if part.few else f"extend(sn{own}, "
            yield f"{step}{LANES * part.vectors})"
        yield f"place(S{own}, q)"
        if not part.few:
            yield f"split(sn{own}, sl{own}, {LANES})"
        vectors = [*([] if part.few else [f"sl{own}"]), *([f"sn{own}"] if part.channels > 1 else [])]
        loops = [*vectors, *reversed(self.tile)]
        yield from (f"distribute({loop})" for loop in loops)
        if part.t.clamped:
            for letter, (bound, name) in zip("cd", _BOUNDS.items(), strict=True):
                lanes = f"{(*vectors, f'sl{own}')[0]}{letter}"
                yield from [] if vectors else [f"split({self.tile[0]}{letter}, {lanes}, 1)"]
                yield f"spread({bound}_g, {self.around}, q{name}{own}, q, f32, {lanes})"
        yield from (f"reorder({loop}b, k{own})" for loop in loops)
        yield from self._inwards(*(f"{loop}b" for loop in vectors))

    def _inwards(self, *loops: str, behind: str = "") -> Iterator[str]:
        """Loops inside of those over a window."""
        lines = list(zip(("ky", "kx"), self.part.t.padded, strict=True))
        for loop, (line, padded) in itertools.product(loops, lines):
            yield f"reorder({loop}, {line}{self.own}{behind})"
            if padded:
                yield f"distribute({loop})"

    @property
    def iterations(self) -> list[tuple[str, int]]:
        """The iteration of the depth, and what it leaves: what names of loops end in, and how many elements."""
        t = self.part.t
        whole = t.depth // t.unroll * t.unroll
        return [("", t.unroll), *([("_r", t.depth - whole)] if whole < t.depth else [])]

    def split(self) -> Iterator[str]:
        """The iterations of the depth."""
        t, own = self.part.t, self.own
        if t.depth % t.unroll:
            yield f"cut(k{own}, {t.depth // t.unroll * t.unroll}, r)"
        for behind, count in self.iterations:
            inner, iterations = f"k{own}{behind}", count // 2 if t.pairs else count
            if iterations > 1:
                yield f"split({inner}, ku{own}{behind}, {count})"
                inner = f"ku{own}{behind}"
            if t.pairs:
                yield f"split({inner}, kq{own}{behind}, 2)"
                yield from (f"reorder(kq{own}{behind}, {loop}b{behind})" for loop in self.tile)
                yield from self._inwards(f"kq{own}{behind}", behind=behind)
                yield from [] if self.part.few else [f"reorder(kq{own}{behind}, sn{own}b{behind})"]

    def written_out(self) -> Iterator[str]:
        """All products of an iteration, in the order of weights."""
        t = self.part.t
        for behind, count in self.iterations:
            own = f"{self.own}{behind}"
            first = (*(f"{loop}b{behind}" for loop in self.tile), f"ky{own}")[0]
            first = f"ku{own}" if count > 1 + t.pairs else first
            group = f"kx{own}" if self.part.few else f"sn{self.own}b{behind}"
            yield f"stage({'a' if t.window is None else 'P'}, {group}, va{own}, r)"
            yield f"stage({self.part.weights}, {group}, vw{own}, q)"
            yield f"line_up({first}, {group}, vw{own}, va{own})"

    def selected(self) -> Iterator[str]:
        """The instructions."""
        t = self.part.t
        yield f"select({self.around}, mve_fp)"
        if t.depth // t.unroll > 1:
            yield f"hardware_loop(k{self.own})"
        yield f"block({self.around})"
        if t.ahead and t.depth // t.unroll > 1:
            yield f"hoist(k{self.own}, {t.ahead})"
