"""The boundary of two pipeline stages: activations coded forward, their gradients backward.

A gradient is coded with the paper's residual compensation (LLM.265 §5.1): what
the first codec lost is coded by a second one, Comp(G) + Comp(G − Comp(G)).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .. import _coded
from .._errors import InputError
from . import _wire
from ._rooms import Rooms, columns, padded

#: The second codec of residual compensation, on what the first one lost.
_COMPENSATION = "rtn-128g"
#: Kinds of numbers that kernels take.
_FORMATS = (torch.float32, torch.bfloat16, torch.float16)


#: What codes boundaries on GPUs, by where they are and what crosses them.
_rooms: dict[tuple[Any, ...], Rooms] = {}


def _rooms_of(place: Any, kind: tuple[torch.Size, torch.dtype, torch.device], bits: float, codec: str) -> Rooms:
    """What codes tensors of one place and kind."""
    shape, dtype, device = kind
    key = (place, codec, bits, shape, dtype, device)
    if key not in _rooms:
        cols = columns(shape)
        _rooms[key] = Rooms(padded(shape.numel(), cols), bits, dtype, device, best=_wire.ON_DEVICE[codec], cols=cols)
    return _rooms[key]


def _flat(rooms: Rooms, x: torch.Tensor) -> torch.Tensor:
    """A tensor as the row that rooms take."""
    flat = x.detach().reshape(1, -1)
    if rooms.values != x.numel():
        flat = torch.nn.functional.pad(flat, (0, rooms.values - x.numel()))
    return flat.contiguous()


def _through_device(x: torch.Tensor, bits: float, codec: str, place: str) -> torch.Tensor:
    """What a receiver makes of a tensor on a GPU: coded and decoded there, on the stream it came on."""
    rooms = _rooms_of(place, (x.shape, x.dtype, x.device), bits, codec)
    flat = _flat(rooms, x)
    if rooms.is_due:
        rooms.renew(flat)
    return rooms.unpack(rooms.pack(flat))[0, : x.numel()].reshape(x.shape)


def _on_device(x: torch.Tensor, codec: str) -> str | None:
    """The codec that codes a tensor on its GPU, where there is one: the first of two under residual compensation."""
    first = codec.split("/")[1] if codec.startswith("residual/") else codec
    return first if x.is_cuda and x.dtype in _FORMATS and first in _wire.ON_DEVICE else None


def _through(x: torch.Tensor, bits: float | None, codec: str) -> torch.Tensor:
    """What a receiver makes of a tensor; the tensor itself where no rate is given."""
    if bits is None:
        return x
    if (first := _on_device(x, codec)) is not None:
        if first == codec:
            return _through_device(x, bits, codec, "forward")
        # Comp(G) + Comp(G − Comp(G)), half of the rate each.
        arrived = _through_device(x, bits / 2, first, "backward")
        return arrived + _through_device(x.detach() - arrived, bits / 2, first, "lost")
    asked = _coded._asked(codec, ("bits", float(bits)), measure=False)
    (coded,) = _coded._encode(["boundary"], [x], None, asked, False)
    decoded: torch.Tensor = _coded._decode([coded], "torch", False)[0]
    return decoded.to(x.device)


def _compensated(codec: str, residual: bool) -> str:
    return f"residual/{codec}/{_COMPENSATION}" if residual else codec


class _Boundary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bits: float | None, grad_bits: float | None, codecs: tuple[str, str]) -> torch.Tensor:  # type: ignore[override]
        ctx.grad_bits, ctx.grad_codec = grad_bits, codecs[1]
        return _through(x, bits, codecs[0]) if bits is not None else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return _through(grad, ctx.grad_bits, ctx.grad_codec), None, None, None


def boundary(
    x: torch.Tensor,
    bits: float | None = 3.5,
    grad_bits: float | None = 8.0,
    *,
    codec: str = "line",
    residual: bool = True,
) -> torch.Tensor:
    """The activation as the next stage receives it; its gradient comes back as that stage sends it.

    ``bits`` and ``grad_bits`` are rates forward and backward, ``None`` for as it
    is. With ``residual`` the gradient is coded in two passes, which together
    keep to ``grad_bits``. For both sides in one process: what a rate does to a
    training can be tried without a second one. `send` and `recv` are the same
    across processes. A tensor on a GPU is coded there, on its stream, and nothing
    is waited for but that a plan is chosen now and then (codecs ``line``,
    ``line-fast``, ``trinity-lite``); both passes are that codec's then.
    """
    out: torch.Tensor = _Boundary.apply(x, bits, grad_bits, (codec, _compensated(codec, residual)))  # type: ignore[no-untyped-call]
    return out


def _send_coded(x: torch.Tensor, bits: float | None, codec: str, to: int, group: Any) -> None:
    target: tuple[str, float] = ("lossless", 0.0) if bits is None else ("bits", float(bits))
    asked = _coded._asked(None if bits is None else codec, target, measure=False)
    (coded,) = _coded._encode(["boundary"], [x], None, asked, False)
    payload = torch.frombuffer(bytearray(coded.bytes), dtype=torch.uint8)
    device = x.device if x.is_cuda and dist.get_backend(group) == "nccl" else torch.device("cpu")
    dist.send(torch.tensor([payload.numel()], device=device), to, group=group)
    dist.send(payload.to(device), to, group=group)


def _recv_coded(source: int, device: torch.device, group: Any) -> torch.Tensor:
    wire = device if dist.get_backend(group) == "nccl" else torch.device("cpu")
    length = torch.zeros(1, dtype=torch.int64, device=wire)
    dist.recv(length, source, group=group)
    payload = torch.empty(int(length), dtype=torch.uint8, device=wire)
    dist.recv(payload, source, group=group)
    coded = _coded.Encoded(payload.cpu().numpy().tobytes(), "torch")
    decoded: torch.Tensor = coded.decode()
    return decoded.to(device)


def _rates(bits: float, residual: bool) -> list[float]:
    """Rates of the passes that a tensor is coded in: Comp(G) + Comp(G − Comp(G)) halves its own."""
    return [bits / 2, bits / 2] if residual else [bits]


class _Room:
    """How tensors of one shape cross a boundary in rooms: both sides know all of it, so that neither waits to be told."""

    def __init__(self, peer: int, group: Any, codec: str, kind: tuple[torch.Size, torch.dtype, torch.device]) -> None:
        if codec not in _wire.ON_DEVICE:
            names = ", ".join(_wire.ON_DEVICE)
            raise InputError(f"{codec} has no kernels that fill rooms\nhelp: {names} have", f"{codec} has no kernels that fill rooms", f"{names} have")
        if kind[2].type != "cuda" or kind[1] not in _FORMATS:
            raise InputError(f"rooms are for f32, bf16 and f16 on a GPU, and this is {kind[1]} on {kind[2]}")
        self.peer, self.group, self.codec, self.kind = peer, group, codec, kind

    def _wire(self) -> torch.device:
        return self.kind[2] if dist.get_backend(self.group) == "nccl" else torch.device("cpu")

    def _rooms(self, way: str, at: int, bits: float) -> Rooms:
        return _rooms_of((way, at, self.peer, id(self.group)), self.kind, bits, self.codec)

    def send(self, x: torch.Tensor, bits: float, residual: bool) -> None:
        for at, rate in enumerate(_rates(bits, residual)):
            rooms = self._rooms("to", at, rate)
            flat = _flat(rooms, x)
            if rooms.is_due:
                plan = rooms.choose(flat)
                rooms.adopt(plan)
                payload = torch.frombuffer(bytearray(plan), dtype=torch.uint8).to(self._wire())
                dist.send(torch.tensor([payload.numel()], device=self._wire()), self.peer, group=self.group)
                dist.send(payload, self.peer, group=self.group)
            packed = rooms.pack(flat)
            dist.send(packed.to(self._wire()), self.peer, group=self.group)
            if at == 0 and residual:
                x = x.detach() - rooms.unpack(packed)[0, : x.numel()].reshape(x.shape)

    def recv(self, bits: float, residual: bool) -> torch.Tensor:
        shape, dtype, device = self.kind
        total: torch.Tensor | None = None
        for at, rate in enumerate(_rates(bits, residual)):
            rooms = self._rooms("from", at, rate)
            if rooms.is_due:
                length = torch.zeros(1, dtype=torch.int64, device=self._wire())
                dist.recv(length, self.peer, group=self.group)
                payload = torch.empty(int(length), dtype=torch.uint8, device=self._wire())
                dist.recv(payload, self.peer, group=self.group)
                rooms.adopt(payload.cpu().numpy().tobytes())
            rooms.uses += 1
            packed = torch.empty(1, rooms.bytes, dtype=torch.uint8, device=self._wire())
            dist.recv(packed, self.peer, group=self.group)
            decoded = rooms.unpack(packed.to(device))[0, : shape.numel()].reshape(shape)
            total = decoded if total is None else total + decoded
        assert total is not None
        return total


class _SendRoom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, room: _Room, bits: float, grad_bits: float, residual: bool) -> torch.Tensor:  # type: ignore[override]
        ctx.room, ctx.grad_bits, ctx.residual = room, grad_bits, residual
        room.send(x, bits, False)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return ctx.room.recv(ctx.grad_bits, ctx.residual), None, None, None, None


class _RecvRoom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, room: _Room, bits: float, grad_bits: float, residual: bool) -> torch.Tensor:  # type: ignore[override]
        ctx.room, ctx.grad_bits, ctx.residual = room, grad_bits, residual
        return room.recv(bits, False)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        ctx.room.send(grad, ctx.grad_bits, ctx.residual)
        return None, None, None, None, None


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bits: float | None, codec: str, to: int, group: Any) -> torch.Tensor:  # type: ignore[override]
        ctx.to, ctx.group, ctx.device = to, group, x.device
        _send_coded(x, bits, codec, to, group)
        # Something to call `backward` on: its gradient is the receiver's.
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return _recv_coded(ctx.to, ctx.device, ctx.group), None, None, None, None


class _Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, grad_bits: float | None, codec: str, source: int, group: Any) -> torch.Tensor:  # type: ignore[override]
        ctx.source, ctx.group, ctx.grad_bits, ctx.codec = source, group, grad_bits, codec
        return _recv_coded(source, anchor.device, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        _send_coded(grad, ctx.grad_bits, ctx.codec, ctx.source, ctx.group)
        return None, None, None, None, None


def send(
    x: torch.Tensor,
    to: int,
    *,
    bits: float | None = 3.5,
    codec: str = "line",
    group: Any = None,
    rooms: bool = False,
    grad_bits: float = 8.0,
    residual: bool = True,
) -> torch.Tensor:
    """Sends an activation to rank ``to``, coded; `recv` there takes it.

    Returns a scalar: its ``backward()`` waits for the gradient that the other
    side sends, and goes on from there. With ``rooms`` a tensor on a GPU is coded
    there into as many bytes as ``bits`` allow, and its gradient comes back in
    ``grad_bits``, which the other side must be told alike: neither has to wait to
    learn a size, and ``nccl`` carries rooms from device to device.
    """
    if rooms:
        if bits is None:
            raise InputError("a room has a rate: give bits")
        room = _Room(to, group, codec, (x.shape, x.dtype, x.device))
        queued: torch.Tensor = _SendRoom.apply(x, room, bits, grad_bits, residual)  # type: ignore[no-untyped-call]
        return queued
    out: torch.Tensor = _Send.apply(x, bits, codec, to, group)  # type: ignore[no-untyped-call]
    return out


def recv(
    source: int,
    *,
    grad_bits: float | None = 8.0,
    codec: str = "line",
    residual: bool = True,
    device: torch.device | str = "cpu",
    group: Any = None,
    like: torch.Tensor | None = None,
    bits: float = 3.5,
) -> torch.Tensor:
    """Takes the activation that rank ``source`` sends; its gradient goes back coded at ``grad_bits``.

    With ``like``, a tensor of the shape and kind that comes, it is what `send` sent with
    ``rooms`` at ``bits``.
    """
    if like is not None:
        if grad_bits is None:
            raise InputError("a room has a rate: give grad_bits")
        room = _Room(source, group, codec, (like.shape, like.dtype, like.device))
        anchor = torch.zeros((), device=like.device, dtype=like.dtype, requires_grad=True)
        taken: torch.Tensor = _RecvRoom.apply(anchor, room, bits, grad_bits, residual)  # type: ignore[no-untyped-call]
        return taken
    anchor = torch.zeros((), device=device, requires_grad=True)
    out: torch.Tensor = _Recv.apply(anchor, grad_bits, _compensated(codec, residual), source, group)  # type: ignore[no-untyped-call]
    return out
