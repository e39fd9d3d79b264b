"""Boundaries of pipeline stages: activations coded forward, their gradients backward.

Both sides are in one process; what the next stage computes with is what it would
have decoded. Bytes are counted for each direction.
"""

from __future__ import annotations

from typing import Any

import torch

from ._coders import Coder, Line, Rtn
from ._config import Pipeline

#: Of the running size of a channel, what a payload leaves as it was.
KEPT = 0.9
#: A channel counts as at least this part of their mean.
FLOOR = 0.02


class Channels:
    """The running mean and size of each channel, of what was decoded: sender and receiver both know them."""

    def __init__(self) -> None:
        self.mean: torch.Tensor | None = None
        self.square: torch.Tensor | None = None

    def scale(self) -> torch.Tensor | None:
        if self.square is None:
            return None
        root = self.square.sqrt()
        return root.clamp_min(root.mean() * FLOOR).clamp_min(1e-30)

    def see(self, decoded: torch.Tensor) -> None:
        for name, found in (("mean", decoded.mean(0)), ("square", decoded.square().mean(0))):
            before = getattr(self, name)
            setattr(self, name, found if before is None else KEPT * before + (1 - KEPT) * found)

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean, "square": self.square}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        for name, value in state.items():
            setattr(self, name, None if value is None else value.to(device))


class Boundary:
    """One boundary: coders for what passes it in both directions."""

    def __init__(self, asked: Pipeline, steps: int) -> None:
        self.asked = asked
        self.activation: Coder | None = Line(asked.activation_bits, asked.best) if asked.activation_bits else None
        self.gradient: Coder | None = None
        self.second: tuple[Coder, Coder] | None = None
        if asked.gradient == "rtn":
            self.gradient = Rtn(int(asked.gradient_bits))
        elif asked.gradient != "none":
            self.gradient = Line(asked.gradient_bits, asked.best)
        if asked.gradient == "residual":
            self.second = Line(asked.gradient_bits, asked.best), Rtn(8)
        self.switch = int(steps * asked.switch)
        self.channels, self.activation_channels = Channels(), Channels()
        self.step = 0
        self.values = self.activation_bytes = self.gradient_bytes = 0

    def _coders(self) -> dict[str, Coder | None]:
        first, then = self.second or (None, None)
        return {"activation": self.activation, "gradient": self.gradient, "second": first, "then": then}

    def state(self) -> dict[str, Any]:
        coders = {name: coder.state() for name, coder in self._coders().items() if coder is not None}
        channels = [self.channels.state(), self.activation_channels.state()]
        return {"coders": coders, "channels": channels}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        for name, coder in self._coders().items():
            if coder is not None:
                coder.load(state["coders"][name])
        for channels, own in zip((self.channels, self.activation_channels), state["channels"]):
            channels.load(own, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.values += x.numel()
        if self.activation is None:
            self.activation_bytes += 4 * x.numel()
            return x.view_as(x)
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        # Channels have means that stay, far from zero: what is known of them need not be sent.
        mean = self.activation_channels.mean
        payload = self.activation.encode(rows if mean is None else rows - mean)
        self.activation_bytes += payload.numel()
        decoded = self.activation.decode(payload, rows.shape)
        decoded = decoded if mean is None else decoded + mean
        self.activation_channels.see(decoded)
        return decoded.view(x.shape).to(x.dtype)

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        if self.gradient is None:
            self.gradient_bytes += 4 * grad.numel()
            return grad
        rows = grad.reshape(-1, grad.shape[-1]).float()
        scale = self.channels.scale() if self.asked.channel_scale else None
        meant = rows if scale is None else rows / scale
        payload = self.gradient.encode(meant)
        self.gradient_bytes += payload.numel()
        decoded = self.gradient.decode(payload, rows.shape)
        if self.second is not None:
            # The paper's residual compensation: Comp(G) + Comp(G − Comp(G)).
            coder = self.second[0 if self.step < self.switch else 1]
            rest = coder.encode(meant - decoded)
            self.gradient_bytes += rest.numel()
            decoded = decoded + coder.decode(rest, rows.shape)
        decoded = decoded if scale is None else decoded * scale
        if self.asked.channel_scale:
            self.channels.see(decoded)
        return decoded.view(grad.shape).to(grad.dtype)


class _Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, boundary: Boundary) -> torch.Tensor:  # type: ignore[override]
        ctx.boundary = boundary
        return boundary.forward(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return ctx.boundary.backward(grad), None


class Boundaries:
    """All boundaries of a pipeline; called with the residual stream and the number of the boundary."""

    def __init__(self, asked: Pipeline, steps: int) -> None:
        self.each = [Boundary(asked, steps) for _ in range(asked.stages - 1)]

    def __call__(self, x: torch.Tensor, number: int) -> torch.Tensor:
        out: torch.Tensor = _Cross.apply(x, self.each[number])  # type: ignore[no-untyped-call]
        return out

    def begin(self, step: int) -> None:
        for boundary in self.each:
            boundary.step = step
            boundary.values = boundary.activation_bytes = boundary.gradient_bytes = 0

    def bits(self) -> tuple[float, float]:
        """Bits per value of this step: activations, gradients."""
        values = max(1, sum(boundary.values for boundary in self.each))
        sums = (sum(b.activation_bytes for b in self.each), sum(b.gradient_bytes for b in self.each))
        return 8.0 * sums[0] / values, 8.0 * sums[1] / values

    def state(self) -> list[dict[str, Any]]:
        return [boundary.state() for boundary in self.each]

    def load(self, state: list[dict[str, Any]], device: torch.device) -> None:
        for boundary, own in zip(self.each, state):
            boundary.load(own, device)
