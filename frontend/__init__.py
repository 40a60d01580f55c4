"""PyTorch in, TOSA on f32 with quant casts out."""

from tosaic.frontend.advice import calibration_advice, quantization_advice
from tosaic.frontend.capture import Capture, capture
from tosaic.frontend.importer import import_program
from tosaic.frontend.quantizer import quantize
from tosaic.frontend.samples import read_labels, read_samples
from tosaic.frontend.simulation import input_statistics, load_float, run_float, run_float_on, save_float

__all__ = [
    "Capture",
    "calibration_advice",
    "capture",
    "import_program",
    "input_statistics",
    "load_float",
    "quantization_advice",
    "quantize",
    "read_labels",
    "read_samples",
    "run_float",
    "run_float_on",
    "save_float",
]
