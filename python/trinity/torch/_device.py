"""The line-rate codec on a GPU: tensors stay on their device and their stream."""

from __future__ import annotations

from typing import Any

import torch

from .. import _core
from .._arrays import _NUMPY
from .._errors import InputError, RunError

#: Bits per value that a tile may take before it is a fault, unless told otherwise.
_ROOM_BITS = 16.0
#: Fewer values per byte than any stream may claim to have.
_LEAST_VALUES_PER_BYTE = 256
#: Where a stream may begin in memory, so that any word of it is whole.
_ALIGNED_BYTES = 16
_devices: dict[int, Any] = {}


def _device(index: int) -> Any:
    if index not in _devices:
        _devices[index] = _core.CudaDevice(index)
    return _devices[index]


def _matrix(shape: torch.Size) -> tuple[int, int]:
    """Rows and columns; a vector is folded where it can be, so that more than one tile holds it."""
    values = shape.numel()
    if len(shape) >= 2:
        return values // shape[-1], shape[-1]
    for cols in (1024, 512, 256, 128):
        if values % cols == 0 and values > cols:
            return values // cols, cols
    return 1, values


class DeviceEncoded:
    """A tensor as coded bytes on its device.

    ``data`` has room for more; ``bytes`` is what counts of it, for which the
    device is waited for.
    """

    def __init__(self, codec: DeviceCodec, data: torch.Tensor, length: torch.Tensor, workspace: torch.Tensor) -> None:
        self.codec = codec
        self.data = data
        self._length = length
        self._workspace = workspace

    def check(self) -> None:
        """Raises where a tile did not fit the room it was given; waits for the device."""
        stream = torch.cuda.current_stream(self.data.device).cuda_stream
        faults = self.codec._encoder.faults(self._workspace.data_ptr(), stream)
        if faults:
            tile, why = faults[0]
            raise RunError(f"{len(faults)} tiles could not be coded; tile {tile}: {why}")

    @property
    def nbytes(self) -> int:
        return int(self._length.item())

    @property
    def bits_per_value(self) -> float:
        return 8.0 * self.nbytes / self.codec.shape.numel()

    @property
    def bytes(self) -> torch.Tensor:
        """The coded bytes, on the device."""
        return self.data[: self.nbytes]

    def decode(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """The tensor again, on its device; queued, and not waited for."""
        return self.codec.decode(self, out)


class DeviceCodec:
    """The line-rate codec for tensors of one shape and kind on a CUDA device.

    The plan (step, classes, tables) is chosen once, on the CPU, for ``example``
    at ``bits`` per value; every tensor is then coded under it on the GPU, on
    PyTorch's current stream, and nothing is waited for. Tensors of other
    statistics take other rates: choose a plan for them. Bytes are those that a
    CPU writes under the plan. Who has a plan for the shape already gives it as
    ``plan``.

    ::

        codec = trinity.torch.DeviceCodec(gradient, bits=3)
        coded = codec.encode(gradient)
        again = coded.decode()
    """

    def __init__(
        self,
        example: torch.Tensor,
        bits: float = 3.0,
        *,
        best: bool = False,
        room_bits: float = _ROOM_BITS,
        plan: bytes | None = None,
    ) -> None:
        if not example.is_cuda:
            raise InputError(
                f"the tensor is on {example.device}\nhelp: trinity.encode codes tensors on the CPU",
                f"the tensor is on {example.device}",
                "trinity.encode codes tensors on the CPU",
            )
        self.shape, self.dtype, self.device = example.shape, example.dtype, example.device
        name = _NUMPY.get(str(example.dtype).removeprefix("torch."), str(example.dtype))
        rows, cols = _matrix(example.shape)
        if plan is None:
            host = example.detach().to(torch.float32).cpu().contiguous().reshape(-1).numpy()
            plan = _core.line_plan(host, rows, cols, float(bits), best)
        #: The plan, as the bytes that every stream begins with, and zeros behind:
        #: who reads a head wants to see that a stream of its size can follow.
        self.plan: bytes = plan + bytes(rows * cols // _LEAST_VALUES_PER_BYTE)
        gpu = _device(example.device.index if example.device.index is not None else torch.cuda.current_device())
        self._encoder = gpu.encoder(self.plan, name, room_bits)
        self._decoder = gpu.decoder(self.plan, name)
        self._sizes = self._encoder.sizes()
        self._decoder_sizes = self._decoder.sizes()

    def _buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def encode(self, x: torch.Tensor) -> DeviceEncoded:
        """Queues the encoding of a tensor like the example."""
        if x.shape != self.shape or x.dtype != self.dtype or x.device != self.device:
            raise InputError(
                f"the codec is for {tuple(self.shape)} of {self.dtype} on {self.device}, "
                f"and this is {tuple(x.shape)} of {x.dtype} on {x.device}"
            )
        x = x.detach().contiguous()
        _, bound, workspace_bytes = self._sizes
        data, workspace = self._buffer(bound), self._buffer(workspace_bytes)
        length = torch.empty(1, dtype=torch.int64, device=self.device)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._encoder.encode(x.data_ptr(), data.data_ptr(), length.data_ptr(), workspace.data_ptr(), stream)
        return DeviceEncoded(self, data, length, workspace)

    def decode(self, coded: DeviceEncoded | torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Queues the decoding of what `encode` made, or of its bytes on the device."""
        source = coded.data if isinstance(coded, DeviceEncoded) else coded.contiguous()
        # The kernels read words: a stream cut out of a larger payload may begin between two.
        if source.data_ptr() % _ALIGNED_BYTES:
            source = source.clone()
        if out is None:
            out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        elif out.shape != self.shape or out.dtype != self.dtype or not out.is_contiguous():
            raise InputError("`out` must be like the tensor that was coded, and its values in a row")
        workspace = self._buffer(self._decoder_sizes[1])
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._decoder.decode(source.data_ptr(), source.numel(), out.data_ptr(), workspace.data_ptr(), stream)
        return out
