"""The constants that algorithms name, of what the families recognize, and which forms of a RESCALE they allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import Workload
from tosaic.backends.cortex_m.kernels.mve_match import fold_zero_point
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.sketches.row_numbers import FactorTypes

_GROUP = 32
"""The fewest weights of four bits that share a factor."""
_ELEMENTS = {"int8": "i8", "int16": "i16", "int32": "i32"}


def epilogue_of(workload: Workload, result: str = "int8") -> Epilogue:
    """How a sum becomes a result, of a type that is `result` where the workload names none."""
    attributes = workload.attributes
    clamped, table = bool(attributes["clamped"]), bool(attributes.get("table"))
    return Epilogue(clamped, table, _ELEMENTS[str(attributes.get("result", result))])


def scales(constants: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The forms that a RESCALE may have, given its `shift` and `zero`: of high words, or of products of 64 bits."""
    shift, zero = (constants[name].astype(np.int64) for name in ("shift", "zero"))
    return ("wide",) if DERIVED["round"](shift, zero) is None else ("high", "wide")


def rescale_form(constants: Mapping[str, np.ndarray]) -> str:
    """The form of a RESCALE by vectors: `rounded` where every shift can be 31, `doubled` where none is below 32, else
    `shifted`; `joined` of sums of 48 bits."""
    if "bias_low" in constants:
        return "joined"
    multiplier, shift = (constants[name].astype(np.int64) for name in ("multiplier", "shift"))
    if DERIVED["whole"](multiplier, shift) is not None:
        return "rounded"
    return "shifted" if DERIVED["down"](shift) is None else "doubled"


def sums_fit(constants: Mapping[str, np.ndarray]) -> bool:
    """Whether scaled sums of products of bytes are numbers of 16 bits before they are saturated."""
    names = ("w", "bias", "multiplier", "shift", "zero")
    return DERIVED["fits"](*(constants[name].astype(np.int64) for name in names)) is not None


def products_fit(constants: Mapping[str, np.ndarray], depth: int) -> bool:
    """Whether scaled sums of products of two bytes, each less its zero point, are such numbers.

    What zero points add is bounded alone, so that a sum counts as four of products.
    """
    names, most = ("multiplier", "shift", "zero"), 4 * depth << 14
    return DERIVED["range_fits"](*(constants[name].astype(np.int64) for name in names), -most, most) is not None


def factor_types(constants: Mapping[str, np.ndarray]) -> FactorTypes:
    """How what channels have of their own lies in memory, of sums of products of bytes.

    Bytes of multipliers take an instruction more, and a bias of 0 some less.
    """
    bias, multiplier, shift = (constants[name].astype(np.int64) for name in ("bias", "multiplier", "shift"))
    if bias.any():
        return FactorTypes("i32" if DERIVED["half_word"](bias) is None else "i16")
    whole = DERIVED["whole"](multiplier, shift)
    return FactorTypes("none", whole is not None and DERIVED["units"](whole) is not None)


def scale_of_sums(multiplier: np.ndarray, shift: np.ndarray) -> tuple[str, Sequence[str]]:
    """The identity by which vectors scale sums of pools and of pixels, and the constants that it takes."""
    if DERIVED["less"](multiplier, shift) is not None:
        return "power", ["less"]
    return ("doubled", ["multiplier", "down"]) if (shift >= 32).all() else ("shifted", ["multiplier", "left", "rest"])


def nibble_group(constants: Mapping[str, np.ndarray]) -> int:
    """The most weights along the depth that have a factor, as of `factor_group`; 0 where no kernel reads them so."""
    weights = constants["w"].reshape(len(constants["w"]), -1).astype(np.int64)
    if not (group := factor_group(weights)):
        return 0
    bias, shift = (constants[name].astype(np.int64) for name in ("bias", "shift"))
    sums = DERIVED["sixteen"](bias, weights), DERIVED["sixteen_shift"](shift)
    return 0 if any(each is None for each in sums) else group


def factor_group(rows: np.ndarray) -> int:
    """The most numbers of a row, of 32, 64, 128 or all, that are multiples of a number of theirs by four bits; 0 where
    there are none, or fewer."""
    depth = rows.shape[1]
    if depth < _GROUP or DERIVED["factors"](rows[:1].astype(np.int64), _GROUP) is None:
        return 0
    sizes = (-(-depth // _GROUP) * _GROUP, 4 * _GROUP, 2 * _GROUP, _GROUP)
    return next((size for size in sizes if DERIVED["factors"](rows.astype(np.int64), size) is not None), 0)


def sixteen_times(constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The constants with the shift of sums that are 16 times as large."""
    return {**constants, "shift": constants["shift"].astype(np.int64) + 4}


def normalized(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 multipliers and shifts that scale alike, each multiplier as large as int32 and a shift of 62 allow."""
    bits = np.frexp(np.maximum(multiplier, 1).astype(np.float64))[1]
    up = np.minimum(31 - bits, 62 - shift.astype(np.int32))
    return (multiplier.astype(np.int64) << up).astype(np.int32), (shift + up).astype(np.int32)


def joined_constants(workload: Workload, parts: int) -> dict[str, np.ndarray]:
    """Those of sums of 48 bits instead of others; the weights of each part lie together."""
    constants, bias = workload.constants, workload.constants["bias"].astype(np.int64)
    weights = constants["weights"].reshape(len(bias), parts, -1).swapaxes(0, 1)
    scale = {name: constants[name].astype(np.int32) for name in ("multiplier", "shift")}
    return {"w": weights, "bias_low": bias & 255, "bias_high": bias >> 8, **scale}


def scale_constants(constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The constants of an epilogue that the algorithms name."""
    zero, low, upper = (np.array(value, np.int32) for value in constants["range"])
    multiplier, shift = normalized(constants["multiplier"], constants["shift"])
    found = {"zero": zero, "low": low, "upper": upper, "multiplier": multiplier, "shift": shift}
    return found | ({"table": constants["table"]} if "table" in constants else {})


def constants_of(workload: Workload) -> dict[str, np.ndarray]:
    """The constants that the algorithms name."""
    constants = workload.constants
    found = scale_constants(constants)
    if "weights" not in constants:
        names = ("a_zero", "b_zero")
        return found | {name: np.array(constants[f"{name}_point"].item(), np.int32) for name in names}
    edge = int(constants["input_zero_point"].item())
    found["bias"] = fold_zero_point(constants["bias"], constants["weights"], edge)
    return found | {"w": constants["weights"], "edge": np.array(edge, np.int32)}
