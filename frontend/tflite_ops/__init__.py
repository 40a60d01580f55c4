"""What ops of TensorFlow Lite compute that Arm's converter has no TOSA for, or other TOSA than LiteRT's reference
kernels: one file for each kind, found by themselves."""
