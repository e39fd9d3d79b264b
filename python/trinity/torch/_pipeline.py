"""The boundary of two pipeline stages: activations coded forward, their gradients backward.

A gradient is coded with the paper's residual compensation (LLM.265 §5.1): what
the first codec lost is coded by a second one, Comp(G) + Comp(G − Comp(G)).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .. import _coded
from .._errors import InputError
from . import _wire
from ._rooms import Rooms, columns, padded
from ._shards import wire_of

#: The second codec of residual compensation, on what the first one lost.
_COMPENSATION = "rtn-128g"
#: Kinds of numbers that kernels take.
_FORMATS = (torch.float32, torch.bfloat16, torch.float16)


#: What codes boundaries on GPUs, by where they are and what crosses them.
_rooms: dict[tuple[Any, ...], Rooms] = {}


def _rooms_of(place: Any, kind: tuple[torch.Size, torch.dtype, torch.device], bits: float, codec: str) -> Rooms:
    shape, dtype, device = kind
    key = (place, codec, bits, shape, dtype, device)
    if key not in _rooms:
        cols = columns(shape)
        _rooms[key] = Rooms(padded(shape.numel(), cols), bits, dtype, device, best=_wire.ON_DEVICE[codec], cols=cols)
    return _rooms[key]


def _flat(rooms: Rooms, x: torch.Tensor) -> torch.Tensor:
    return rooms.whole(x.detach().reshape(1, -1))


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


def _send_bytes(data: bytes, to: int, wire: torch.device, group: Any) -> None:
    payload = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(wire)
    dist.send(torch.tensor([payload.numel()], device=wire), to, group=group)
    dist.send(payload, to, group=group)


def _recv_bytes(source: int, wire: torch.device, group: Any) -> bytes:
    length = torch.zeros(1, dtype=torch.int64, device=wire)
    dist.recv(length, source, group=group)
    payload = torch.empty(int(length), dtype=torch.uint8, device=wire)
    dist.recv(payload, source, group=group)
    return payload.cpu().numpy().tobytes()


def _send_coded(x: torch.Tensor, bits: float | None, codec: str, to: int, group: Any) -> None:
    target: tuple[str, float] = ("lossless", 0.0) if bits is None else ("bits", float(bits))
    asked = _coded._asked(None if bits is None else codec, target, measure=False)
    (coded,) = _coded._encode(["boundary"], [x], None, asked, False)
    _send_bytes(coded.bytes, to, wire_of(x.device, group), group)


def _recv_coded(source: int, device: torch.device, group: Any) -> torch.Tensor:
    coded = _coded.Encoded(_recv_bytes(source, wire_of(device, group), group), "torch")
    decoded: torch.Tensor = coded.decode()
    return decoded.to(device)


def _rates(bits: float, residual: bool) -> list[float]:
    """Rates of the passes that a tensor is coded in: Comp(G) + Comp(G − Comp(G)) halves its own."""
    return [bits / 2, bits / 2] if residual else [bits]


class _Room:
    """How tensors of one shape cross a boundary in rooms: both sides know all of it, so that neither waits to be told."""

    def __init__(self, peer: int, group: Any, codec: str, kind: tuple[torch.Size, torch.dtype, torch.device]) -> None:
        if codec not in _wire.ON_DEVICE:
            raise InputError.advised(f"{codec} has no kernels that fill rooms", f"{', '.join(_wire.ON_DEVICE)} have")
        if kind[2].type != "cuda" or kind[1] not in _FORMATS:
            raise InputError(f"rooms are for f32, bf16 and f16 on a GPU, and this is {kind[1]} on {kind[2]}")
        self.peer, self.group, self.codec, self.kind = peer, group, codec, kind
        self.wire = wire_of(kind[2], group)

    def _rooms(self, way: str, at: int, bits: float) -> Rooms:
        return _rooms_of((way, at, self.peer, id(self.group)), self.kind, bits, self.codec)

    def send(self, x: torch.Tensor, bits: float, residual: bool) -> None:
        for at, rate in enumerate(_rates(bits, residual)):
            rooms = self._rooms("to", at, rate)
            flat = _flat(rooms, x)
            if rooms.is_due:
                plan = rooms.choose(flat)
                rooms.adopt(plan)
                _send_bytes(plan, self.peer, self.wire, self.group)
            packed = rooms.pack(flat)
            dist.send(packed.to(self.wire), self.peer, group=self.group)
            if at == 0 and residual:
                x = x.detach() - rooms.unpack(packed)[0, : x.numel()].reshape(x.shape)

    def recv(self, bits: float, residual: bool) -> torch.Tensor:
        shape, dtype, device = self.kind
        total: torch.Tensor | None = None
        for at, rate in enumerate(_rates(bits, residual)):
            rooms = self._rooms("from", at, rate)
            if rooms.is_due:
                rooms.adopt(_recv_bytes(self.peer, self.wire, self.group))
            rooms.uses += 1
            packed = torch.empty(1, rooms.bytes, dtype=torch.uint8, device=self.wire)
            dist.recv(packed, self.peer, group=self.group)
            decoded = rooms.unpack(packed.to(device))[0, : shape.numel()].reshape(shape)
            total = decoded if total is None else total + decoded
        assert total is not None
        return total


class _Sent(torch.autograd.Function):
    """An activation that is given away; its gradient is the receiver's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, give: Callable[[torch.Tensor], None], take: Callable[[], torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        ctx.take = take
        give(x)
        # Something to call `backward` on.
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return ctx.take(), None, None


class _Received(torch.autograd.Function):
    """An activation that is taken; its gradient is given back."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, take: Callable[[], torch.Tensor], give: Callable[[torch.Tensor], None]) -> torch.Tensor:  # type: ignore[override]
        ctx.give = give
        return take()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        ctx.give(grad)
        return None, None, None


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
        give = functools.partial(room.send, bits=bits, residual=False)
        take = functools.partial(room.recv, grad_bits, residual)
    else:
        give = functools.partial(_send_coded, bits=bits, codec=codec, to=to, group=group)
        take = functools.partial(_recv_coded, to, x.device, group)
    out: torch.Tensor = _Sent.apply(x, give, take)  # type: ignore[no-untyped-call]
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
        take = functools.partial(room.recv, bits, False)
        give = functools.partial(room.send, bits=grad_bits, residual=residual)
    else:
        anchor = torch.zeros((), device=device, requires_grad=True)
        take = functools.partial(_recv_coded, source, anchor.device, group)
        give = functools.partial(_send_coded, bits=grad_bits, codec=_compensated(codec, residual), to=source, group=group)
    out: torch.Tensor = _Received.apply(anchor, take, give)  # type: ignore[no-untyped-call]
    return out
