"""`nhwc` changes how images come in, and nothing of what is computed."""

import torch

from tosaic.backends.reference import evaluate
from tosaic.frontend import capture, import_program, quantize, run_float_on
from tosaic.frontend.layouts import channels_last
from tosaic.passes import run_phases
from tosaic.support.mlir import functions, walk


def test_the_program_computes_the_same_of_permuted_images():
    planes, pixels = capture("zoo:dscnn"), capture("zoo:dscnn", nhwc=True)
    assert pixels.input_names == planes.input_names
    assert [list(x.shape) for x in planes.inputs] == [[1, 1, 49, 10]]
    assert [list(x.shape) for x in pixels.inputs] == [[1, 49, 10, 1]]
    batches = planes.calibration[:2]
    expected = run_float_on(planes, batches)
    found = run_float_on(pixels, [channels_last(batch) for batch in batches])
    for one, other in zip(expected, found, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(torch.as_tensor(b), torch.as_tensor(a))


def test_no_transpose_is_left_at_the_entry():
    module = import_program(quantize(capture("zoo:mobilenet_v1", nhwc=True)))
    run_phases(module)
    main = functions(module)["main"]
    assert "tensor<1x96x96x3xi8>" in str(main.regions[0].blocks[0].arguments[0].type)
    assert not [op for op in walk(main) if op.name == "tosa.transpose"]


def test_an_input_without_axes_is_one_element():
    class Scaled(torch.nn.Module):
        def forward(self, x, k):
            return x * k + k

    x, k = torch.linspace(-1, 1, 8).reshape(2, 4), torch.tensor(3.0)
    captured = capture(Scaled(), inputs=(x, k), calibration=[(x, k), (-x, k)])
    assert captured.inputs[1].shape == captured.calibration[1][1].shape == (1,)
    module = import_program(captured.program)
    run_phases(module, ["legalize"])
    (got,) = evaluate(module, [one.numpy() for one in captured.inputs])
    torch.testing.assert_close(torch.from_numpy(got), x * 3 + 3)
    run_phases(import_program(quantize(captured)))


def test_results_go_out_with_their_channels_last():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 5, 3, padding=1)
            self.calls = torch.nn.Buffer(torch.zeros(1, 5, 6, 7))

        def forward(self, x):
            y = self.conv(x)
            self.calls.add_(y)
            return {"pixels": y.relu(), "kept": self.calls * 2, "mean": y.mean((2, 3))}

    x = torch.linspace(-1, 1, 126).reshape(1, 3, 6, 7)
    net = Net().eval()
    planes, pixels = (capture(net, inputs=(x,), nhwc_results=given) for given in (False, True))
    assert pixels.output_names == planes.output_names
    expected, found = (run_float_on(one, [one.inputs])[0] for one in (planes, pixels))
    for name, a, b in zip(planes.output_names, expected, found, strict=True):
        own = name in ("pixels", "kept")
        want = torch.as_tensor(a)
        torch.testing.assert_close(torch.as_tensor(b), want.permute(0, 2, 3, 1) if own else want)


def test_no_transpose_is_left_between_channels_last():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)).eval()
    module = import_program(quantize(capture(net, inputs=(torch.randn(1, 3, 8, 8),), nhwc=True, nhwc_results=True)))
    run_phases(module)
    main = functions(module)["main"]
    assert "-> tensor<1x8x8x4xi8>" in str(main.attributes["function_type"])
    assert not [op for op in walk(main) if op.name == "tosa.transpose"]
