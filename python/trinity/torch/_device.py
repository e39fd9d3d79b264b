"""The line-rate codec on a GPU: tensors stay on their device and their stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _core
from .._errors import InputError, RunError
from ._rooms import LEAST_VALUES_PER_BYTE, device_of, dtype_name

#: Bits per value that a tile may take before it is a fault, unless told otherwise.
_ROOM_BITS = 16.0
#: Where a stream may begin in memory, so that any word of it is whole.
_ALIGNED_BYTES = 16


def _matrix(shape: torch.Size) -> tuple[int, int]:
    """Rows and columns; a vector is folded where it can be, so that more than one tile holds it."""
    values = shape.numel()
    if len(shape) >= 2:
        return values // shape[-1], shape[-1]
    for cols in (1024, 512, 256, 128):
        if values % cols == 0 and values > cols:
            return values // cols, cols
    return 1, values


def _refuse(faults: Sequence[tuple[int, str]], done: str) -> None:
    if faults:
        tile, why = faults[0]
        raise RunError(f"{len(faults)} tiles could not be {done}; tile {tile}: {why}")


class DeviceEncoded:
    """A tensor as coded bytes on its device.

    ``data`` has room for more; ``bytes`` is what counts of it, for which the
    device is waited for.
    """

    def __init__(
        self, codec: DeviceCodec, data: torch.Tensor, length: torch.Tensor, workspace: torch.Tensor, count: int = 1
    ) -> None:
        self.codec, self.data, self._length, self._workspace = codec, data, length, workspace
        # Tensors that were coded together.
        self._count = count

    def check(self) -> None:
        """Raises where a tile did not fit the room it was given, of any tensor that was coded together with this one; waits for the device."""
        stream = torch.cuda.current_stream(self.data.device).cuda_stream
        faults = self.codec._encoder.faults(self._workspace.data_ptr(), stream, self._count)
        _refuse(faults, "coded")

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
    PyTorch's current stream, and nothing is waited for. With ``follow`` a tensor's
    step follows from its mean square, found on the device: tensors of other scales
    take about as many bits. Tensors of other statistics take other rates: choose a
    plan for them. Bytes are those that a CPU writes under the plan that a stream
    states. Who has a plan for the shape already gives it as ``plan``.
    ``tile_values`` makes tiles smaller, so that a small tensor is done sooner and
    takes more bits.

    ::

        codec = trinity.torch.DeviceCodec(gradient, bits=3)
        coded = codec.encode(gradient)
        again = coded.decode()
        pages = codec.encode_all([first, second, third])  # in one launch
        again = codec.decode_all(pages)
    """

    def __init__(
        self,
        example: torch.Tensor,
        bits: float = 3.0,
        *,
        best: bool = False,
        room_bits: float = _ROOM_BITS,
        plan: bytes | None = None,
        follow: bool = False,
        tile_values: int | None = None,
    ) -> None:
        if not example.is_cuda:
            raise InputError.advised(f"the tensor is on {example.device}", "trinity.encode codes tensors on the CPU")
        self.shape, self.dtype, self.device = example.shape, example.dtype, example.device
        name = dtype_name(example.dtype)
        rows, cols = _matrix(example.shape)
        host: torch.Tensor | None = None
        if plan is None or follow:
            host = example.detach().to(torch.float32).cpu().contiguous().reshape(-1)
        if plan is None:
            assert host is not None
            plan = _core.line_plan(host.numpy(), rows, cols, float(bits), best, tile_values)
        #: The plan, as the bytes that every stream begins with, and zeros behind:
        #: who reads a head wants to see that a stream of its size can follow.
        self.plan: bytes = plan + bytes(rows * cols // LEAST_VALUES_PER_BYTE)
        planned_rows, planned_cols, step, _ = _core.line_plan_info(self.plan)
        if planned_rows * planned_cols != rows * cols:
            raise InputError(
                f"the plan is for {planned_rows} × {planned_cols} values, and the tensor is {tuple(example.shape)}"
            )
        relative: float | None = None
        if follow:
            assert host is not None
            finite = host[torch.isfinite(host)]
            root = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
            relative = step / root if root > 0 else step
        gpu = device_of(example.device)
        self._encoder = gpu.encoder(self.plan, name, room_bits, relative)
        self._decoder = gpu.decoder(self.plan, name)

    def _buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def _values(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape != self.shape or x.dtype != self.dtype or x.device != self.device:
            raise InputError(
                f"the codec is for {tuple(self.shape)} of {self.dtype} on {self.device}, "
                f"and this is {tuple(x.shape)} of {x.dtype} on {x.device}"
            )
        return x.detach().contiguous()

    def _stream(self) -> int:
        return torch.cuda.current_stream(self.device).cuda_stream

    def encode(self, x: torch.Tensor) -> DeviceEncoded:
        """Queues the encoding of a tensor like the example."""
        return self.encode_all([x])[0]

    def encode_all(self, tensors: Sequence[torch.Tensor]) -> list[DeviceEncoded]:
        """Queues the encoding of tensors like the example, in one launch of each kernel."""
        values = [self._values(x) for x in tensors]
        count = len(values)
        if count == 0:
            return []
        _, bound, workspace_bytes = self._encoder.sizes(count)
        bound = -(-bound // _ALIGNED_BYTES) * _ALIGNED_BYTES
        data, workspace = self._buffer(count * bound), self._buffer(workspace_bytes)
        lengths = torch.empty(count, dtype=torch.int64, device=self.device)
        first = data.data_ptr()
        self._encoder.encode_many(
            [x.data_ptr() for x in values], [first + at * bound for at in range(count)],
            lengths.data_ptr(), workspace.data_ptr(), self._stream(),
        )  # fmt: skip
        parts = zip(data.split(bound), lengths.split(1))
        return [DeviceEncoded(self, part, length, workspace, count) for part, length in parts]

    def _source(self, coded: DeviceEncoded | torch.Tensor) -> torch.Tensor:
        source = coded.data if isinstance(coded, DeviceEncoded) else coded.contiguous()
        if source.device != self.device or source.dtype != torch.uint8:
            raise InputError(f"coded bytes are uint8 on {self.device}, and these are {source.dtype} on {source.device}")
        # The kernels read words: a stream cut out of a larger payload may begin between two.
        return source.clone() if source.data_ptr() % _ALIGNED_BYTES else source

    def decode(self, coded: DeviceEncoded | torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Queues the decoding of what `encode` made, or of its bytes on the device."""
        return self.decode_all([coded], None if out is None else [out])[0]

    def decode_all(
        self,
        coded: Sequence[DeviceEncoded | torch.Tensor],
        out: Sequence[torch.Tensor] | None = None,
        *,
        check: bool = False,
    ) -> list[torch.Tensor]:
        """Queues the decoding of what `encode_all` made, or of bytes on the device, in one launch.

        With ``check`` the device is waited for, and a damaged stream, or one under
        another plan, is an error; without, it decodes to something else.
        """
        sources = [self._source(one) for one in coded]
        count = len(sources)
        if count == 0:
            return []
        if out is None:
            out = [torch.empty(self.shape, dtype=self.dtype, device=self.device) for _ in sources]
        if len(out) != count or any(
            one.shape != self.shape or one.dtype != self.dtype or one.device != self.device or not one.is_contiguous()
            for one in out
        ):
            raise InputError("`out` must be like the tensor that was coded, and its values in a row")
        workspace = self._buffer(self._decoder.sizes(count)[1])
        self._decoder.decode_many(
            [one.data_ptr() for one in sources], [one.numel() for one in sources],
            [one.data_ptr() for one in out], workspace.data_ptr(), self._stream(),
        )  # fmt: skip
        if check:
            faults = self._decoder.faults(workspace.data_ptr(), self._stream(), count)
            _refuse(faults, "decoded")
        return list(out)
