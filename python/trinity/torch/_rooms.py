"""Tensors of one place on a GPU, step after step, in rooms of one size.

What a collective exchanges and a cache keeps has a size that is known ahead, so
nobody waits for the device to learn how long a stream became. The plan is chosen on
the host from a sample, rarely; from then on the device finds each tensor's step by
its mean square, codes it, and codes it again more coarsely where it does not fit.
Nothing is copied to the host and nothing is waited for. Streams are those of the
line-rate codec: a CPU under the plan that a stream states writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _core
from .._arrays import _NUMPY
from .._errors import InputError

#: Columns of the matrix that a tensor is folded to unless told otherwise: its values are a multiple of them.
COLS = 256
#: Values that a plan is chosen from, in bands of rows from all over the tensors.
_SAMPLE, _BAND = 1 << 18, 64
#: Values up to which a tensor goes as it is: a header would outweigh the gain.
SMALL_VALUES = 2048
#: Bits per value that tiles have room for before they are gathered, over the rate and at least.
_ROOM_OVER, _LEAST_ROOM_BITS = 4.0, 8.0
#: Uses of a plan after which it is chosen anew: soon at first, as a training changes most then.
_RENEWED = (10, 50, 200)
#: Steps over the plan's beyond which it does not fit: half as much error again.
_OFF = 1.2
#: Share of the mean square from which on means of columns are taken off.
_LEAST_MEANS = 0.02
#: Tiles that share a multiprocessor where others need theirs.
CROWD = 24
#: Fewer values per byte than any stream may claim to have.
LEAST_VALUES_PER_BYTE = 256
_devices: dict[int, Any] = {}


def device_of(device: torch.device) -> Any:
    """The kernels on a device, compiled as they are asked for."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    if index not in _devices:
        _devices[index] = _core.CudaDevice(index)
    return _devices[index]


def dtype_name(dtype: torch.dtype) -> str:
    return _NUMPY.get(str(dtype).removeprefix("torch."), str(dtype))


class Coder:
    """One plan on one device: what codes tensors of its shape, and what decodes them.

    Where so many of them are coded ``beside`` other work, their tiles are crowded on few
    multiprocessors: a block of the codec keeps those of products off its own, and a tile,
    which is one warp's, takes nearly as long where it has a multiprocessor for itself.
    ``means`` of columns are taken off before values are coded, and put back after.
    """

    def __init__(
        self, plan: bytes, values: int, bits: float, dtype: torch.dtype, device: torch.device, beside: int | None = None,
        means: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        self.means = means
        # Who reads a head wants to see that a stream of its size can follow.
        self.plan = plan + bytes(values // LEAST_VALUES_PER_BYTE)
        rows, cols, step, _ = _core.line_plan_info(self.plan)
        if rows * cols != values:
            raise InputError(f"the plan is for {rows} × {cols} values, and these are {values}")
        gpu, name = device_of(device), dtype_name(dtype)
        room_bits = max(_ROOM_OVER * bits, _LEAST_ROOM_BITS)
        # The plan is of values whose mean square is one.
        taken = None if beside is None else -(-beside * _core.line_plan_tiles(self.plan) // CROWD)
        self.encoder = gpu.encoder(self.plan, name, room_bits, step, taken)
        self.decoder = gpu.decoder(self.plan, name, taken)


class Rooms:
    """What keeps a plan for tensors of ``values`` numbers each, coded at ``bits`` per value on a GPU.

    ``gains`` are kept for as many tensors as `pack` is given: what a tensor took of its
    room says how finely the next one in its place is coded. ``beside`` is how many are
    coded at a time beside other work that wants its multiprocessors (see `Coder`). A
    ``trellis`` takes twice as long to encode and leaves three tenths less of the error.
    A stream's means of columns are in steps: one ``with_means`` decodes without what wrote
    it, and is for steps that stay near the plan's. Others are for any step; where tensors
    have means that stay, `renew` keeps them beside the plan.
    """

    def __init__(
        self, values: int, bits: float, dtype: torch.dtype, device: torch.device, *, best: bool = False, cols: int = COLS,
        beside: int | None = None, trellis: bool = False, with_means: bool = False,
    ) -> None:  # fmt: skip
        self.beside, self.trellis, self.with_means = beside, trellis, with_means
        self.values, self.bits, self.dtype, self.device, self.best, self.cols = values, bits, dtype, device, best, cols
        self.is_plain = values <= SMALL_VALUES
        if not self.is_plain and values % cols:
            raise InputError(f"{values} values are no multiple of {cols}")
        #: Bytes of a room.
        self.bytes = values * dtype.itemsize
        if not self.is_plain:
            self.bytes = _core.ROOM_HEAD_BYTES + int(values * bits / 8) // 16 * 16
        self.coder: Coder | None = None
        self.uses = 0
        #: How often a plan was chosen.
        self.chosen = 0
        self._gains: torch.Tensor | None = None
        # Uses before the plan.
        self._since = 0

    @property
    def is_due(self) -> bool:
        """Whether a plan is to be chosen before the next tensors are coded: all ranks say the same."""
        if self.is_plain:
            return False
        return self.coder is None or self.uses in _RENEWED or (self.uses > _RENEWED[-1] and self.uses % _RENEWED[-1] == 0)

    def choose(self, x: torch.Tensor) -> bytes:
        """A plan for tensors like these, from bands all over them. Waits for the device; `adopt` takes it."""
        rows = x.detach().reshape(-1, self.cols)
        # As many as one tensor has at most: tiles must fit into it.
        wanted = min(self.values // self.cols, max(_SAMPLE // self.cols, _BAND))
        band = min(wanted, _BAND)
        starts = torch.linspace(0, rows.shape[0] - band, wanted // band).long().tolist()
        per_tensor = self.values // self.cols
        # Steps follow each tensor's mean square: values over its root are what is coded.
        roots = torch.linalg.vector_norm(x.detach().reshape(-1, self.values), dim=1, dtype=torch.float32)
        scales = (roots / self.values**0.5).cpu().repeat_interleave(per_tensor)
        sample = torch.cat([rows[at : at + band] for at in starts]).float().cpu()
        sample = sample / torch.cat([scales[at : at + band] for at in starts])[:, None]
        sample = torch.where(torch.isfinite(sample), sample, torch.zeros_like(sample))
        if not bool(sample.any()):
            sample = torch.randn(sample.shape, generator=torch.Generator().manual_seed(1))
        try:
            return self._plan_of(sample, per_tensor)
        except InputError:
            # A head of many classes leaves a small tensor no room: one for noise is short.
            noise = torch.randn(sample.shape, generator=torch.Generator().manual_seed(1))
            return self._plan_of(noise, per_tensor)

    def _plan_of(self, sample: torch.Tensor, of_rows: int) -> bytes:
        flat = sample.reshape(-1).contiguous().numpy()
        # A little below the rate: what is not in the sample may need more.
        target_bits = 0.98 * self.bits
        shape = (sample.shape[0], self.cols, of_rows)
        return _core.line_plan_of_sample(flat, shape, target_bits, self.best, self.trellis, self.with_means)

    def renew(self, x: torch.Tensor) -> None:
        """Chooses a plan for tensors like these and adopts it, with the means of their columns. Waits for the device."""
        rows = x.detach().reshape(-1, self.cols).float()
        means = rows.mean(0)
        share = float(means.square().mean() / rows.square().mean())
        # No number where all is zero, or a value is none.
        kept = means.to(self.dtype) if share > _LEAST_MEANS else None
        self.adopt(self.choose(x if kept is None else _over_rows(torch.sub, x, kept)), kept)

    @property
    def is_off(self) -> bool:
        """Whether the plan does not fit what was packed last, and is old enough to be chosen anew. Waits for the device."""
        is_old = not self.is_plain and self._gains is not None and self.uses >= self._since + (1 << min(self.chosen, 30))
        return is_old and float(self._gains.max()) > _OFF  # type: ignore[union-attr]

    def adopt(self, plan: bytes, means: torch.Tensor | None = None) -> None:
        """Codes under a plan from now on, and over such means of columns."""
        # A search over states computes more than it waits: it takes all multiprocessors.
        beside = None if self.best or self.trellis else self.beside
        self.coder = Coder(plan, self.values, self.bits, self.dtype, self.device, beside, means)
        self.chosen += 1
        self._since = self.uses
        if self._gains is not None:
            self._gains.fill_(1.0)

    def whole(self, x: torch.Tensor) -> torch.Tensor:
        """Tensors, one a row, with as many values as rooms are for: zeros behind those that they have."""
        short = self.values - x.shape[1]
        return (torch.nn.functional.pad(x, (0, short)) if short else x).contiguous()

    def _check(self, x: torch.Tensor) -> None:
        if x.device != self.device or x.dtype != self.dtype or x.shape[-1] != self.values or not x.is_contiguous():
            raise InputError(
                f"the rooms are for {self.values} values of {self.dtype} on {self.device} each, in a row, "
                f"and this is {tuple(x.shape)} of {x.dtype} on {x.device}{'' if x.is_contiguous() else ', not in a row'}"
            )

    def pack(self, x: torch.Tensor, gain: float | None = None) -> torch.Tensor:
        """Tensors, one a row, as rooms, one a row. Queued, and not waited for.

        A ``gain`` multiplies their steps, instead of the one that is kept from what the tensors before took.
        """
        self._check(x)
        count = x.shape[0]
        if self.is_plain:
            return x.detach().view(torch.uint8).reshape(count, self.bytes)
        if self.coder is None:
            self.adopt(self.choose(x))
        assert self.coder is not None
        if self._gains is None or self._gains.numel() != count:
            self._gains = torch.ones(count, device=self.device)
        if gain is not None:
            self._gains.fill_(gain)
        self.uses += 1
        if self.coder.means is not None:
            x = _over_rows(torch.sub, x, self.coder.means)
        out = torch.empty(count, self.bytes, dtype=torch.uint8, device=self.device)
        workspace = torch.empty(self.coder.encoder.sizes(count)[2], dtype=torch.uint8, device=self.device)
        self.coder.encoder.encode_within(
            _addresses(x), _addresses(out), (self.bytes, self._gains.data_ptr()), workspace.data_ptr(), _stream(self.device)
        )
        return out

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Rooms as tensors again, one a row; NaN where a value was not finite. Queued, and not waited for."""
        return unpack(self.coder, packed, (self.values, self.dtype))


def unpack(coder: Coder | None, packed: torch.Tensor, kind: tuple[int, torch.dtype]) -> torch.Tensor:
    """Rooms of a coder (of none: plain values) as tensors, one a row."""
    count, (values, dtype) = packed.shape[0], kind
    if coder is None:
        return packed.contiguous().view(dtype).reshape(count, values)
    out = torch.empty(count, values, dtype=dtype, device=packed.device)
    if packed.data_ptr() % 8 or packed.stride(1) != 1 or packed.stride(0) % 8:
        packed = packed.clone(memory_format=torch.contiguous_format)
    workspace = torch.empty(coder.decoder.sizes(count)[1], dtype=torch.uint8, device=packed.device)
    coder.decoder.decode_within(
        _addresses(packed), packed.shape[1], _addresses(out), workspace.data_ptr(), _stream(packed.device)
    )
    return out if coder.means is None else out.copy_(_over_rows(torch.add, out, coder.means))


def _over_rows(do: Callable[..., torch.Tensor], x: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    """Tensors, one a row, each as a matrix with the means of its columns taken off or put on."""
    return do(x.detach().reshape(-1, means.numel()), means).reshape(x.shape)


def padded(values: int, cols: int = COLS) -> int:
    """So many values, or as many more as make whole rows."""
    return values if values <= SMALL_VALUES else -(-values // cols) * cols


def columns(shape: torch.Size) -> int:
    """Columns that a tensor is coded with: its own where kernels like them, so that channels keep their scales."""
    return int(shape[-1]) if len(shape) > 1 and shape[-1] % 64 == 0 and shape[-1] <= 8192 else COLS


def _addresses(rows: torch.Tensor) -> Sequence[int]:
    first, stride = rows.data_ptr(), rows.stride(0) * rows.element_size()
    return [first + at * stride for at in range(rows.shape[0])]


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream
