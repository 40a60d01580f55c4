"""What the firmware runs: named buffers and a list of calls over them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.kernel import Fed, KernelSource
from tosaic.support.errors import BackendError
from tosaic.support.quantization import Quantization


@dataclass(frozen=True)
class TensorBuffer:
    """A dense row-major tensor of `shape` and `dtype`; one with a `value` is a constant and never written."""

    shape: tuple[int, ...]
    dtype: np.dtype
    value: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Interface:
    """An input or output of the model: its name in `model.h`, its buffer, and its quantization where it has one."""

    name: str
    buffer: str
    quantization: Quantization | None = None

    def dtype(self, stored: np.dtype) -> str:
        """numpy's name of its dtype, where its buffer holds `stored`."""
        return "uint8" if self.quantization is not None and self.quantization.storage == "ui8" else stored.name


@dataclass(frozen=True)
class KernelCall:
    """A kernel on the core. `inputs` and `outputs` name buffers in the order of the kernel's arguments.

    `where` is the user's source line and op, for the report.
    """

    kernel: KernelSource
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    where: str = ""

    @property
    def name(self) -> str:
        return self.kernel.symbol

    @property
    def reads(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def writes(self) -> tuple[str, ...]:
        return self.outputs


CONSTANTS_REGION, SCRATCH_REGION, FAST_REGION = 0, 1, 2


@dataclass(frozen=True)
class Port:
    """Where a command stream has a tensor: byte `address` in `region` (base pointer number)."""

    buffer: str
    region: int
    address: int


@dataclass(frozen=True)
class NpuCall:
    """A command stream on the NPU.

    Base pointer 0 is `constants`, 1 is `scratch_bytes` of arena, 2 is `fast_bytes` of the fastest arena memory. A
    higher region with one port, at address 0, is that port's buffer itself. A buffer may lie where a port is in region
    1 (`CallSequence.fixed_offsets`). Every other port is copied, inputs before the call and outputs after it.

    Args:
        command_stream: the register command words, little-endian.
        header: what Arm's core driver wants before them: whole blocks of 16 bytes.
    """

    name: str
    command_stream: bytes
    constants: bytes
    scratch_bytes: int
    fast_bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    where: str = ""
    header: bytes = b""

    def is_bound(self, port: Port) -> bool:
        """Whether the port's region is its buffer, so that nothing is copied."""
        alone = sum(other.region == port.region for other in (*self.inputs, *self.outputs)) == 1
        return port.region > FAST_REGION and port.address == 0 and alone

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(port.buffer for port in self.inputs)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(port.buffer for port in self.outputs)


Call = KernelCall | NpuCall


@dataclass(frozen=True)
class Copy:
    """A buffer that takes what another one holds, before call number `before`, or behind all of them."""

    source: str
    target: str
    before: int


@dataclass(frozen=True)
class CalledMethod:
    """A method of a model: calls `first` to `end`, which is not one of them, and the inputs and outputs that it has."""

    name: str
    first: int
    end: int
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]


@dataclass(frozen=True)
class CallSequence:
    """A model as calls in order.

    Args:
        buffers: every tensor by name.
        aliases: a buffer that is another one's storage under another shape (`tosa.reshape`): name -> name.
        states: what stays in its buffer from one inference to the next.
        copies: what ends an inference, or a method; those of one moment all at a time: each source is read as the calls
            have left it.
        methods: what can be called of it; empty where that is all of it. Inputs and outputs are theirs, in their order.
    """

    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    buffers: Mapping[str, TensorBuffer]
    calls: tuple[Call, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    states: tuple[Interface, ...] = ()
    copies: tuple[Copy, ...] = ()
    methods: tuple[CalledMethod, ...] = ()

    def storage(self, name: str) -> str:
        """The buffer that holds `name`, after all aliases."""
        while name in self.aliases:
            name = self.aliases[name]
        return name

    @cached_property
    def fixed_offsets(self) -> dict[str, tuple[int, int]]:
        """The buffers that lie in the working memory of an NPU call: the call's number, and the port's address there.

        Such an input is read by nothing else, as the call may overwrite it.
        """
        reads = Counter(self.storage(name) for call in self.calls for name in call.reads)
        kept = {self.storage(each.buffer) for each in self.states} | {self.fed}
        kept |= {self.storage(name) for copy in self.copies for name in (copy.source, copy.target)}
        kept |= {name for name, buffer in self.buffers.items() if buffer.value is not None}
        results = {self.storage(each.buffer) for each in self.outputs}
        found: dict[str, tuple[int, int]] = {}
        for number, call in enumerate(self.calls):
            if not isinstance(call, NpuCall):
                continue
            alone = [port for port in call.inputs if (n := self.storage(port.buffer)) not in results and reads[n] == 1]
            for port in (*alone, *call.outputs):
                storage = self.storage(port.buffer)
                if port.region == SCRATCH_REGION and storage not in kept and storage not in found:
                    found[storage] = number, port.address
        return found

    def is_copied(self, number: int, port: Port) -> bool:
        """Whether a port of a call has memory of its own beside its buffer."""
        call = self.calls[number]
        assert isinstance(call, NpuCall)
        is_fixed = self.fixed_offsets.get(self.storage(port.buffer)) == (number, port.address)
        return not call.is_bound(port) and not (is_fixed and port.region == SCRATCH_REGION)

    def method_at(self, call: int) -> CalledMethod | None:
        """The method that a call belongs to."""
        return next((method for method in self.methods if method.first <= call < method.end), None)

    def copies_before(self, call: int) -> tuple[Copy, ...]:
        """The copies that stand before a call; before none of them where that is how many there are."""
        return tuple(copy for copy in self.copies if copy.before == call)

    @property
    def fed_call(self) -> tuple[KernelCall, Fed] | None:
        """The first call, where the rows of an input are fed to it as they come."""
        first = next(iter(self.calls), None)
        if not isinstance(first, KernelCall) or first.kernel.fed is None:
            return None
        return first, first.kernel.fed

    @property
    def fed(self) -> str | None:
        """The input's buffer that is fed, so that it lies nowhere."""
        if self.fed_call is None:
            return None
        call, fed = self.fed_call
        return self.storage(call.inputs[fed.input])

    @property
    def fed_rows(self) -> int:
        """The rows of what is fed; 0 where nothing is."""
        if self.fed_call is None:
            return 0
        call, fed = self.fed_call
        return self.buffers[self.storage(call.inputs[fed.input])].size // fed.row_bytes

    @property
    def hop_rows(self) -> int:
        """The rows that move a window on to its next results; 0 where each inference stands for itself."""
        return self.fed_call[1].hop if self.fed_call else 0

    def check(self) -> None:
        """Whether the program can run as written.

        Raises:
            BackendError: a call uses a buffer that does not exist or that nothing wrote, or writes a constant.
        """
        for name, root in self.aliases.items():
            if self._buffer(name, "an alias").size != self._buffer(root, "an alias").size:
                raise BackendError(f"alias `{name}` and its storage `{root}` differ in size")
        written = {self.storage(interface.buffer) for interface in (*self.inputs, *self.states)}
        written |= {name for name, buffer in self.buffers.items() if buffer.value is not None}
        for call in self.calls:
            for name in call.reads:
                self._buffer(name, call.name)
                if self.storage(name) not in written:
                    raise BackendError(f"`{call.name}` reads `{name}` before anything writes it", where=call.where)
            for name in call.writes:
                self._buffer(name, call.name)
                if self.buffers[self.storage(name)].value is not None:
                    raise BackendError(f"`{call.name}` writes the constant `{name}`", where=call.where)
                written.add(self.storage(name))
        for copy in self.copies:
            if self.storage(copy.source) not in written:
                raise BackendError(f"`{copy.target}` takes `{copy.source}`, which nothing writes")
            if self.buffers[copy.source].size != self.buffers[copy.target].size:
                raise BackendError(f"`{copy.target}` and `{copy.source}`, which it takes, differ in size")
        written |= {copy.target for copy in self.copies}
        for interface in self.outputs:
            self._buffer(interface.buffer, f"output `{interface.name}`")
            if self.storage(interface.buffer) not in written:
                raise BackendError(f"nothing writes output `{interface.name}`")

    def port_regions(self, call: NpuCall) -> dict[int, int]:
        """The regions above the fast one that need memory of their own for copied ports: number -> bytes."""
        sizes: dict[int, int] = {}
        for port in (*call.inputs, *call.outputs):
            if port.region > FAST_REGION and not call.is_bound(port):
                end = port.address + self.buffers[port.buffer].size
                sizes[port.region] = max(sizes.get(port.region, 0), end)
        return sizes

    def kernels(self) -> Iterator[KernelSource]:
        """Each kernel once, in order of first use.

        Raises:
            BackendError: two kernels share a symbol and differ in code.
        """
        seen: dict[str, str] = {}
        for call in self.calls:
            if not isinstance(call, KernelCall):
                continue
            if call.kernel.symbol not in seen:
                seen[call.kernel.symbol] = call.kernel.text
                yield call.kernel
            elif seen[call.kernel.symbol] != call.kernel.text:
                raise BackendError(f"two kernels have the symbol `{call.kernel.symbol}` and different code")

    def _buffer(self, name: str, user: str) -> TensorBuffer:
        if name not in self.buffers:
            raise BackendError(f"{user} uses buffer `{name}`, which does not exist")
        return self.buffers[name]
