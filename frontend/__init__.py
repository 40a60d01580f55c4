"""PyTorch in, TOSA on f32 with quant casts out."""

from tosaic.frontend.advice import bias_advice, calibration_advice, joined_advice, range_advice
from tosaic.frontend.capture import Capture, capture
from tosaic.frontend.causes import Cause, Scan
from tosaic.frontend.coarser_weights import WeightBudget, coarsen
from tosaic.frontend.importer import import_program
from tosaic.frontend.quantizer import prepare, quantize
from tosaic.frontend.samples import check_sample, read_labels, read_samples
from tosaic.frontend.simulation import input_statistics, load_float, run_float, run_float_on, save_float
from tosaic.frontend.tosa_file import TosaFile, is_tosa_file, read_tosa

__all__ = [
    "Capture",
    "Cause",
    "Scan",
    "TosaFile",
    "WeightBudget",
    "bias_advice",
    "calibration_advice",
    "capture",
    "check_sample",
    "coarsen",
    "import_program",
    "input_statistics",
    "is_tosa_file",
    "joined_advice",
    "load_float",
    "prepare",
    "quantize",
    "range_advice",
    "read_labels",
    "read_samples",
    "read_tosa",
    "run_float",
    "run_float_on",
    "save_float",
]
