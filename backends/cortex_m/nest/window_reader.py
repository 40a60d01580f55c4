"""How the windows of a tile are read: where the image lies, from a padded copy of it, or copied side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.contraction import Contraction
from tosaic.support.errors import BackendError

MOST_PADDED = 4096


@dataclass(frozen=True)
class Vector:
    """One vector along the depth of a window.

    Args:
        row: the row of the window that it lies in.
        offset: bytes from the start of that row.
        first, count: the weights that meet it, as elements of the depth.
        skipped: elements before those, which another vector has.
    """

    row: int
    offset: int
    first: int
    count: int
    skipped: int = 0


@dataclass(frozen=True)
class WindowReader:
    """Vectors of windows, and the C that lets pointers lead to them.

    Args:
        what: the problem.
        padded: whether the image is read from a copy between its padding.
        staged: whether windows are copied side by side (im2col).
        flat: whether pixels are counted through all rows.
        pixels: of a tile.
        count: C of the pixels of a tile, where some tiles are shorter.
    """

    what: Contraction
    padded: bool
    staged: bool
    flat: bool
    pixels: int
    count: str

    @cached_property
    def geometry(self) -> Geometry:
        """Of the image as it is read: padded, it has no border."""
        found = self.what.geometry
        if not self.padded:
            return found
        top, bottom, left, right = found.pad
        height, width = top + found.height + bottom, left + found.width + right
        return replace(found, height=height, width=width, pad=(0, 0, 0, 0))

    @cached_property
    def vectors(self) -> list[Vector]:
        """The vectors of a window in the order in which they are multiplied.

        The last of a stretch in the image ends where that does, so that nothing behind it is read.
        """
        element, found = self.what.dot.element, list[Vector]()
        for row, at, first, size in [(0, 0, 0, self.what.depth)] if self.staged else runs(self.geometry):
            for step in range(0, size, VECTOR):
                skipped = max(0, step + VECTOR - size) if self._overlaps and size >= VECTOR else 0
                count = min(VECTOR, size - step) // element
                found.append(Vector(row, at + step - skipped, (first + step) // element, count, skipped // element))
        return found

    @cached_property
    def words(self) -> bool:
        """Whether all vectors of the image lie at multiples of four."""
        return self.staged or self.geometry.channels % 4 == 0

    @property
    def pointers(self) -> list[str]:
        """The pointers into the image that `sums` takes: one for each row of a window."""
        return [f"p{row}" for row in dict.fromkeys(vector.row for vector in self.vectors)]

    @property
    def pitch(self) -> int:
        """Bytes from a window to the next, in the image or side by side."""
        if self.staged:
            return len(self.vectors) * VECTOR
        return self.geometry.stride[1] * self.geometry.channels

    @property
    def _read_at_once(self) -> int:
        """Windows that one set of pointers reaches: all of a tile in the image; one where each is copied."""
        return 1 if self.staged else self.pixels

    @property
    def row_reach(self) -> int:
        """Bytes from where a row of a window begins to the end of what is read there."""
        first = (self._read_at_once - 1) * self.geometry.stride[1] * self.geometry.channels
        ends = (max(size, VECTOR) if self._overlaps else round_up(size, VECTOR) for *_, size in runs(self.geometry))
        return first + max(at + end for (_, at, _, _), end in zip(runs(self.geometry), ends, strict=True))

    @cached_property
    def _overlaps(self) -> bool:
        """Whether the last vector of a stretch begins in the one before: where the host packs the weights."""
        return not self.staged

    @property
    def _strip_columns(self) -> int:
        return (self._read_at_once - 1) * self.geometry.stride[1] + self.geometry.span[1]

    @property
    def _strip_pitch(self) -> int:
        return round_up(max(self._strip_columns * self.geometry.channels, self.row_reach), VECTOR)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the parts of scratch memory that it takes."""
        geometry, sizes = self.geometry, dict[str, int]()
        if self.staged:
            sizes["windows"] = self.pixels * self.pitch + VECTOR
        if self.padded:
            sizes["padded"] = geometry.height * geometry.width * geometry.channels + self.row_reach + VECTOR
        elif self.border:
            sizes["strip"] = geometry.kernel[0] * self._strip_pitch + VECTOR
        return sizes

    @property
    def _safe(self) -> int:
        """The last byte of the images at which a tile may begin, and read nothing behind their end."""
        geometry = self.geometry
        row_bytes = geometry.width * geometry.channels
        reach = (geometry.kernel[0] - 1) * geometry.dilation[0] * row_bytes + self.row_reach
        return geometry.batch * geometry.height * row_bytes - reach

    @property
    def _fits(self) -> tuple[int, int]:
        """The last row and column at which a tile may begin, and lie in the image."""
        return self.geometry.height - self.geometry.span[0], self.geometry.width - self._strip_columns

    @cached_property
    def _conditions(self) -> list[str]:
        """C of what must hold to read a tile in `image`, where it begins at row `iy`, column `ix`, at `from`."""
        if self.padded:
            return []
        geometry, fits = self.geometry, self._fits
        if min(fits) < 0:
            return ["0"]
        found = [f"(unsigned)iy <= {fits[0]}", f"(unsigned)ix <= {fits[1]}"] if any(geometry.pad) else []
        last = ((geometry.batch * geometry.height - geometry.span[0]) * geometry.width + fits[1]) * geometry.channels
        if self._safe < last:
            found.append(f"from <= in + {self._safe}" if self._safe >= 0 else "0")
        return found

    @property
    def border(self) -> bool:
        """Whether some tiles cannot be read in the image."""
        return bool(self._conditions)

    def padding(self, at: Mapping[str, int]) -> list[str]:
        """C that copies the image between zeros; here and elsewhere `at` says where parts of scratch memory begin."""
        if not self.padded:
            return []
        found, padded, size = self.what.geometry, self.geometry, round_up(self.sizes["padded"], VECTOR)
        row, pitch = found.width * found.channels, padded.width * found.channels
        start = found.pad[0] * pitch + found.pad[2] * found.channels
        return [
            f"int8_t *padded = scratch + {at['padded']};",
            f"for (int i = 0; i < {size}; i += {VECTOR}) vstrbq_s8(padded + i, zero);",
            f"for (int row = 0; row < {found.height}; row++)",
            f"  copy(padded + {start} + row * {pitch}, in + row * {row}, {row});",
        ]

    def strip_function(self) -> list[str]:
        """C of `strip`: the rows of a tile's windows, with zeros outside of the image."""
        geometry, pitch = self.geometry, self._strip_pitch
        row_bytes, pixel, columns = geometry.width * geometry.channels, geometry.channels, self._strip_columns
        start = f"image + iy * {row_bytes} + (ix + first) * {pixel}"
        return [
            "INLINE void strip(int8_t *to, const int8_t *image, int iy, int ix, int8x16_t zero)",
            "{",
            "  const int first = ix < 0 ? -ix : 0;",
            f"  const int last = {geometry.width} - ix < {columns} ? {geometry.width} - ix : {columns};",
            f"  for (int ky = 0; ky < {geometry.kernel[0]}; ky++, to += {pitch}, iy += {geometry.dilation[0]}) {{",
            f"    for (int i = 0; i < {pitch}; i += {VECTOR}) vstrbq_s8(to + i, zero);",
            f"    if ((unsigned)iy < {geometry.height})",
            f"      copy(to + first * {pixel}, {start}, (last - first) * {pixel});",
            "  }",
            "}",
        ]

    def located(self, at: Mapping[str, int]) -> list[str]:
        """C that sets the pointers of a tile, and copies its windows where they are staged."""
        geometry = self.geometry
        rows, columns = geometry.rows, geometry.columns
        image_bytes = geometry.height * geometry.width * geometry.channels
        base = f"scratch + {at['padded']}" if self.padded else "in"
        lines = []
        if self.flat and (rows > 1 or geometry.batch > 1):
            lines += [f"const int row = x / {columns};", f"int column = x - row * {columns};"]
        else:
            lines += [f"const int row = {'0' if self.flat else 'y'};", "int column = x;"]
        if geometry.batch > 1:
            lines += [
                f"const int8_t *image = {base} + row / {rows} * {image_bytes};",
                f"int iy = row % {rows} * {geometry.stride[0]} - {geometry.pad[0]};",
            ]
        else:
            lines += [f"const int8_t *image = {base};", f"int iy = row * {geometry.stride[0]} - {geometry.pad[0]};"]
        lines.append(f"int ix = column * {geometry.stride[1]} - {geometry.pad[2]};")
        if self.staged:
            lines += self._copies(image_bytes, at)
        else:
            lines += ["const int8_t *from;", "int step;", *self._locate(at)]
            lines += [f"const int8_t *p{ky} = from + {ky} * step;" for ky in range(geometry.kernel[0])]
        return lines

    def _locate(self, at: Mapping[str, int]) -> list[str]:
        """C that lets `from` and `step` lead through the rows of the windows at `image`, `iy`, `ix`."""
        geometry = self.geometry
        row_bytes = geometry.width * geometry.channels
        lines = [
            f"from = image + iy * {row_bytes} + ix * {geometry.channels};",
            f"step = {geometry.dilation[0] * row_bytes};",
        ]
        if not self.border:
            return lines
        return [
            *lines,
            f"if (!({' && '.join(self._conditions)})) {{",
            f"  strip(scratch + {at['strip']}, image, iy, ix, zero);",
            f"  from = scratch + {at['strip']};",
            f"  step = {self._strip_pitch};",
            "}",
        ]

    def _copies(self, image_bytes: int, at: Mapping[str, int]) -> list[str]:
        """C that copies the windows of a tile side by side, those of a row inside the image together."""
        geometry, kernel, pitch = self.geometry, self.geometry.kernel, self.pitch
        stretches = [(start, first, size) for ky, start, first, size in runs(geometry) if ky == 0]
        pixel, row = geometry.channels, geometry.dilation[0] * geometry.width * geometry.channels
        (top, _, left, _), (down, right), width = geometry.pad, geometry.stride, kernel[1] * geometry.channels

        def moves(to: int, start: int) -> list[str]:
            return [
                f"vstrbq_s8(to + {to + first + step}, vldrbq_s8(from + {start + source + step}));"
                for source, first, size in stretches
                for step in range(0, size, VECTOR)
            ]

        together = [moves(ky * width, ky * row) for ky in range(kernel[0])]
        limits = [f"{geometry.columns} - column", f"{self.count} - r"]
        limits += [f"({self._fits[1]} - ix) / {right} + 1"] if any(geometry.pad) else []
        limits += (
            [f"(in + {self._safe} - from) / {right * pixel} + 1"] if any("in +" in c for c in self._conditions) else []
        )
        inside = [
            *(f"if (count > {limit}) count = {limit};" for limit in limits),
            f"for (int i = 0; i < count; i++, from += {right * pixel}, to += {pitch}) {{",
            *(f"  {line}" for line in itertools.chain.from_iterable(together)),
            "}",
        ]
        alone = (
            [
                "count = 1;",
                f"strip(scratch + {at['strip']}, image, iy, ix, zero);",
                f"from = scratch + {at['strip']};",
                f"for (int ky = 0; ky < {kernel[0]}; ky++, from += {self._strip_pitch}, to += {width}) {{",
                *(f"  {line}" for line in moves(0, 0)),
                "}",
            ]
            if self.border
            else []
        )
        next_image = f"  if (iy == {geometry.rows * down - top}) {{ iy = {-top}; image += {image_bytes}; }}"
        return [
            f"int8_t *p0 = scratch + {at['windows']};",
            f"for (int r = 0, count = {self.count}; r < {self.count}; r += count, count = {self.count}) {{",
            f"  int8_t *to = p0 + r * {pitch};",
            f"  const int8_t *from = image + iy * {geometry.width * pixel} + ix * {pixel};",
            f"  if ({' && '.join(self._conditions) or 1}) {{",
            *(f"    {line}" for line in inside),
            *(["  } else {"] if alone else []),
            *(f"    {line}" for line in alone),
            "  }",
            f"  ix += count * {right};",
            "  column += count;",
            f"  if (column == {geometry.columns}) {{",
            f"    column = 0; ix = {-left}; iy += {down};",
            *([f"  {next_image}"] if geometry.batch > 1 else []),
            "  }",
            "}",
        ]

    def verify(self) -> None:
        """Check that windows can be read so.

        Raises:
            BackendError: the message says why not.
        """
        if self.flat and not self.staged and self.geometry.rows * self.geometry.batch > 1:
            raise BackendError("windows in the image cannot be counted through its rows")
        if self.padded and (self.geometry.batch > 1 or self.sizes["padded"] > MOST_PADDED):
            raise BackendError("a padded copy of the image takes too much memory")


def runs(geometry: Geometry) -> list[tuple[int, int, int, int]]:
    """The stretches of a window that lie together: (row, bytes from its start, bytes of the depth before, bytes)."""
    (height, width), (_, right), pixel = geometry.kernel, geometry.dilation, geometry.channels
    columns = 1 if right == 1 else width
    return [
        (ky, kx * right * pixel, (ky * width + kx) * pixel, width // columns * pixel)
        for ky in range(height)
        for kx in range(columns)
    ]
