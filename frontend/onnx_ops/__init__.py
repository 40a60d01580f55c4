"""What the ops of ONNX compute, in PyTorch: one file for each kind, found by themselves.

The rules hold from opset 13 on; an operand that used to be an attribute, axes say, has the name of that attribute.
"""
