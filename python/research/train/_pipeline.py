"""Boundaries of pipeline stages: activations coded forward, their gradients backward.

Both sides are in one process, and what the next stage computes with is what it would
have decoded; or each stage is one (`StageProcess`). Bytes are counted for each direction.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ._coders import Clock, Coder, Line, Rtn, Timed, Turned, Video
from ._config import Pipeline, Run
from ._model import Flat, Llama
from ._wire import Processes, as_bytes

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
    """One boundary: coders for what passes it in both directions.

    What is sent is made by `pack_…` on one side and read by `unpack_…` on both, so that both know the same.
    """

    def __init__(self, asked: Pipeline, steps: int, clock: Clock) -> None:
        self.asked = asked
        self.steps = steps
        self.activation: Timed | None = None
        if asked.activation_bits:
            self.activation = Timed(self._coder(asked.activation_bits, asked.activation_rows, 0.0), clock)
        self.gradient: Timed | None = None
        self.second: tuple[Timed, Timed] | None = None
        if asked.gradient == "rtn":
            self.gradient = Timed(Rtn(int(asked.gradient_bits)), clock)
        elif asked.gradient == "trinity":
            self.gradient = Timed(self._coder(asked.gradient_bits, asked.gradient_rows, asked.gradient_whiten), clock)
        elif asked.gradient == "residual":
            self.gradient = Timed(self._plain_coder(asked.gradient_bits), clock)
            self.second = Timed(self._plain_coder(asked.gradient_bits), clock), Timed(Rtn(8), clock)
        self.switch = int(steps * asked.switch)
        self.channels, self.activation_channels = Channels(), Channels()
        self.step = 0
        self.values = self.activation_bytes = self.gradient_bytes = 0

    def _coder(self, bits: float, rows: bool, whiten: float) -> Coder:
        if self.asked.basis == "covariance":
            return Turned(bits, self.asked.best, rows, whiten)
        return self._plain_coder(bits)

    def _plain_coder(self, bits: float) -> Coder:
        return Line(bits, self.asked.best) if self.asked.codec == "trinity" else Video(self.asked.codec, bits)

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

    def begin(self, step: int) -> None:
        self.step = step
        self.values = self.activation_bytes = self.gradient_bytes = 0
        if self.asked.rise:
            share = 1 + self.asked.rise * (2 * step / max(1, self.steps - 1) - 1)
            for coder, bits in ((self.activation, self.asked.activation_bits), (self.gradient, self.asked.gradient_bits)):
                if coder is not None:
                    coder.aim(bits * share)

    def pack_activation(self, rows: torch.Tensor) -> torch.Tensor:
        self.values += rows.numel()
        if self.activation is None:
            payload = as_bytes(rows)
        else:
            # Channels have means that stay, far from zero: what is known of them need not be sent.
            mean = self.activation_channels.mean
            payload = self.activation.encode(rows if mean is None else rows - mean)
        self.activation_bytes += payload.numel()
        return payload

    def unpack_activation(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        if self.activation is None:
            return payload.view(torch.float32).view(shape)
        mean = self.activation_channels.mean
        decoded = self.activation.decode(payload, shape)
        decoded = decoded if mean is None else decoded + mean
        if self.asked.basis == "channels":
            self.activation_channels.see(decoded)
        return decoded

    def _second(self) -> Coder | None:
        """The paper's residual compensation, Comp(G) + Comp(G − Comp(G)): who codes what the first lost."""
        return None if self.second is None else self.second[0 if self.step < self.switch else 1]

    def _scale(self) -> torch.Tensor | None:
        return self.channels.scale() if self.asked.channel_scale else None

    def pack_gradient(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """What a stage sends back, in one or two parts."""
        if self.gradient is None:
            payloads = [as_bytes(rows)]
        else:
            scale = self._scale()
            meant = rows if scale is None else rows / scale
            payloads = [self.gradient.encode(meant)]
            second = self._second()
            if second is not None:
                payloads.append(second.encode(meant - self.gradient.decode(payloads[0], rows.shape)))
        self.gradient_bytes += sum(payload.numel() for payload in payloads)
        return payloads

    def unpack_gradient(self, payloads: list[torch.Tensor], shape: torch.Size) -> torch.Tensor:
        if self.gradient is None:
            return payloads[0].view(torch.float32).view(shape)
        decoded = self.gradient.decode(payloads[0], shape)
        second = self._second()
        if second is not None:
            decoded = decoded + second.decode(payloads[1], shape)
        scale = self._scale()
        decoded = decoded if scale is None else decoded * scale
        if self.asked.channel_scale:
            self.channels.see(decoded)
        return decoded

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both sides: what the next stage computes with."""
        rows = rows_of(x)
        return self.unpack_activation(self.pack_activation(rows), rows.shape).view(x.shape).to(x.dtype)

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        rows = rows_of(grad)
        return self.unpack_gradient(self.pack_gradient(rows), rows.shape).view(grad.shape).to(grad.dtype)


def rows_of(x: torch.Tensor) -> torch.Tensor:
    return x.detach().reshape(-1, x.shape[-1]).float()


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

    def __init__(self, asked: Pipeline, steps: int, clock: Clock) -> None:
        self.each = [Boundary(asked, steps, clock) for _ in range(asked.stages - 1)]

    def __call__(self, x: torch.Tensor, number: int) -> torch.Tensor:
        out: torch.Tensor = _Cross.apply(x, self.each[number])  # type: ignore[no-untyped-call]
        return out

    def begin(self, step: int) -> None:
        for boundary in self.each:
            boundary.begin(step)

    def sent(self) -> list[int]:
        """Values, and bytes of activations and of gradients, that the stages of this process sent in this step."""
        each = ((b.values, b.activation_bytes, b.gradient_bytes) for b in self.each)
        return [sum(column) for column in zip(*each)]

    def state(self) -> list[dict[str, Any]]:
        return [boundary.state() for boundary in self.each]

    def load(self, state: list[dict[str, Any]], device: torch.device) -> None:
        for boundary, own in zip(self.each, state):
            boundary.load(own, device)


class StageProcess:
    """The stage whose number is this process' rank: activations come from the one before, gradients from the one after.

    Micro-batches go through one by one, as in the simulation, and end with its bits. Gradients
    of all stages are put together for the step, so that every process holds all weights.
    """

    def __init__(self, run: Run, model: Llama, flat: Flat, boundaries: Boundaries, link: Processes) -> None:
        self.run, self.model, self.flat, self.link = run, model, flat, link
        self.number, self.stages = link.rank, run.pipeline.stages
        self.before: Boundary | None = boundaries.each[self.number - 1] if self.number else None
        self.after: Boundary | None = boundaries.each[self.number] if self.number < self.stages - 1 else None

    def _from_before(self, part: torch.Tensor) -> torch.Tensor:
        """Bytes of the text, or what the stage before sent."""
        if self.before is None:
            return part[:, :-1]
        shape = torch.Size(((part.shape[1] - 1) * part.shape[0], self.flat.width))
        (payload,) = self.link.receive(1, self.number - 1, part.device)
        rows = self.before.unpack_activation(payload, shape)
        return rows.view(part.shape[0], -1, self.flat.width).requires_grad_()

    def _gradient_after(self, out: torch.Tensor) -> torch.Tensor:
        """What the next stage says of this one's output, which is sent to it."""
        assert self.after is not None
        rows = rows_of(out)
        payload = self.after.pack_activation(rows)
        # What the next stage will see of it, for what both remember.
        self.after.unpack_activation(payload, rows.shape)
        self.link.send([payload], self.number + 1)
        parts = 2 if self.after.second is not None else 1
        payloads = self.link.receive(parts, self.number + 1, out.device)
        return self.after.unpack_gradient(payloads, rows.shape).view(out.shape).to(out.dtype)

    def _to_before(self, entry: torch.Tensor) -> None:
        if self.before is None:
            return
        assert entry.grad is not None
        rows = rows_of(entry.grad)
        payloads = self.before.pack_gradient(rows)
        self.before.unpack_gradient(payloads, rows.shape)
        self.link.send(payloads, self.number - 1)

    def gradient(self, parts: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradient of all stages, and the loss, in nats."""
        first, last = self.flat.embedding
        of_embedding = self.flat.gradient[first:last]
        embedding = []
        total = torch.zeros((), device=self.flat.gradient.device)
        for part in parts:
            of_embedding.zero_()
            entry = self._from_before(part)
            with torch.autocast(entry.device.type, torch.bfloat16, enabled=self.run.precision == "bf16"):
                out = self.model.stage(entry, self.number, self.stages)
            if self.after is None:
                loss = F.cross_entropy(out.float().flatten(0, 1), part[:, 1:].flatten()) / len(parts)
                loss.backward()  # type: ignore[no-untyped-call]
                total = total + loss.detach()
            else:
                out.backward(self._gradient_after(out))  # type: ignore[no-untyped-call]
            self._to_before(entry)
            embedding.append(of_embedding.clone())
        of_embedding.zero_()
        whole = self.link.sums(self.flat.gradient)
        # The embedding has a gradient from either end of the pipeline: added up for each part, as autograd does.
        for one in self.link.sums(torch.stack(embedding)):
            whole[first:last] += one
        return whole, self.link.sums(total)
