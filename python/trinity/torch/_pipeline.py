"""The boundary of two pipeline stages: activations coded forward, their gradients backward.

A gradient is coded with the paper's residual compensation (LLM.265 §5.1): what
the first codec lost is coded by a second one, Comp(G) + Comp(G − Comp(G)).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .. import _coded

#: The second codec of residual compensation, on what the first one lost.
_COMPENSATION = "rtn-128g"


def _through(x: torch.Tensor, bits: float | None, codec: str) -> torch.Tensor:
    """What a receiver makes of a tensor; the tensor itself where no rate is given."""
    if bits is None:
        return x
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
    across processes.
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
    x: torch.Tensor, to: int, *, bits: float | None = 3.5, codec: str = "line", group: Any = None
) -> torch.Tensor:
    """Sends an activation to rank ``to``, coded; `recv` there takes it.

    Returns a scalar: its ``backward()`` waits for the gradient that the other
    side sends, and goes on from there.
    """
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
) -> torch.Tensor:
    """Takes the activation that rank ``source`` sends; its gradient goes back coded at ``grad_bits``."""
    anchor = torch.zeros((), device=device, requires_grad=True)
    out: torch.Tensor = _Recv.apply(anchor, grad_bits, _compensated(codec, residual), source, group)  # type: ignore[no-untyped-call]
    return out
