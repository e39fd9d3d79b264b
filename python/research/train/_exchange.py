"""Gradients of all ranks to their mean, every value coded once or twice on the way.

``gather``: everybody sends its coded gradient to everybody. ``two-step``: shards go
to their owners, who add them up and send the coded sum to all, which takes
2 (N − 1)/N transmissions a value however many ranks there are. What coding lost may
be added to the next step, as it was or in units of the scale map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._coders import Coder
from ._wire import Wire, as_bytes

#: A coder for rows [first, last) of the matrix, at a rate (0 for the usual).
MakeCoder = Callable[[int, int, float], Coder]


class Feedback:
    """What coding lost, by name of what was coded."""

    def __init__(self, kind: str, decay: float) -> None:
        self.kind, self.decay = kind, decay
        self.lost: dict[str, torch.Tensor] = {}

    def meant(self, name: str, values: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        """The values over their scale, with what is to be made good."""
        lost = self.lost.get(name)
        if self.kind == "raw" and lost is not None:
            values = values + self.decay * lost
        scaled = values if scale is None else values / scale
        return scaled + self.decay * lost if self.kind == "scaled" and lost is not None else scaled

    def remember(self, name: str, meant: torch.Tensor, sent: torch.Tensor, scale: torch.Tensor | None) -> None:
        if self.kind == "none":
            return
        lost = meant - sent
        self.lost[name] = lost * scale if self.kind == "raw" and scale is not None else lost


class Exchange:
    """Means of matrices over ranks through coders."""

    def __init__(self, wire: Wire, make: MakeCoder, kind: str, feedback: Feedback, sum_bits: float = 0.0) -> None:
        self.wire, self.make, self.two_step = wire, make, kind == "two-step"
        self.feedback, self.sum_bits = feedback, sum_bits
        self.coders: dict[str, Coder] = {}
        self._waiting: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        coders = {name: coder.state() for name, coder in self.coders.items()}
        return {"coders": coders, "lost": self.feedback.lost}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        self._waiting = dict(state["coders"])
        self.feedback.lost = {name: lost.to(device) for name, lost in state["lost"].items()}

    def _coder(self, name: str, first: int, last: int, bits: float = 0.0) -> Coder:
        if name not in self.coders:
            self.coders[name] = self.make(first, last, bits)
            if name in self._waiting:
                self.coders[name].load(self._waiting.pop(name))
        return self.coders[name]

    def mean(self, values: list[torch.Tensor], scale: torch.Tensor | None) -> tuple[torch.Tensor, float]:
        """The mean over ranks, and the bytes that a rank sends for one transmission of all values."""
        if self.two_step:
            return self._through_owners(values, scale)
        rows = values[0].shape[0]
        payloads, meant = [], []
        for rank, own in zip(self.wire.local, values):
            meant.append(self.feedback.meant(f"g{rank}", own, scale))
            payloads.append(self._coder(f"g{rank}", 0, rows).encode(meant[-1]))
        total, sent = None, 0
        for rank, payload in enumerate(self.wire.gather(payloads)):
            decoded = self._coder(f"g{rank}", 0, rows).decode(payload, values[0].shape)
            if rank in self.wire.local:
                self.feedback.remember(f"g{rank}", meant[self.wire.local.index(rank)], decoded, scale)
            total = decoded if total is None else total + decoded
            sent += payload.numel()
        assert total is not None
        mean = total / self.wire.ranks
        return (mean if scale is None else mean * scale), sent / self.wire.ranks

    def _through_owners(self, values: list[torch.Tensor], scale: torch.Tensor | None) -> tuple[torch.Tensor, float]:
        ranks, rows = self.wire.ranks, values[0].shape[0]
        bounds = [rows * at // ranks for at in range(ranks + 1)]
        spans = list(zip(bounds, bounds[1:]))
        shapes = [torch.Size((last - first, values[0].shape[1])) for first, last in spans]
        parts, first_bytes = [], 0
        for rank, own in zip(self.wire.local, values):
            meant = self.feedback.meant(f"g{rank}", own, scale)
            payloads, decoded = [], []
            for owner, span in enumerate(spans):
                coder = self._coder(f"g{rank}to{owner}", *span)
                payloads.append(coder.encode(meant[span[0] : span[1]]))
                decoded.append(coder.decode(payloads[-1], shapes[owner]))
            self.feedback.remember(f"g{rank}", meant, torch.cat(decoded), scale)
            first_bytes += sum(payload.numel() for payload in payloads)
            parts.append(payloads)
        sums = []
        for owner, received in self.wire.shuffle(parts).items():
            span, shape = spans[owner], shapes[owner]
            total = torch.zeros(shape, device=values[0].device)
            for rank, payload in enumerate(received):
                total = total + self._coder(f"g{rank}to{owner}", *span).decode(payload, shape)
            mean = total / ranks
            own_scale = None if scale is None else scale[span[0] : span[1]]
            meant = self.feedback.meant(f"s{owner}", mean if own_scale is None else mean * own_scale, own_scale)
            coder = self._coder(f"s{owner}", *span, self.sum_bits)
            sums.append(coder.encode(meant))
            self.feedback.remember(f"s{owner}", meant, coder.decode(sums[-1], shape), own_scale)
        whole, second_bytes = [], 0
        for owner, payload in enumerate(self.wire.gather(sums)):
            whole.append(self._coder(f"s{owner}", *spans[owner], self.sum_bits).decode(payload, shapes[owner]))
            second_bytes += payload.numel()
        mean = torch.cat(whole)
        # Every rank sends its gradient once in shards, and all together the sum once.
        sent = (first_bytes / len(self.wire.local) + second_bytes) / 2
        return (mean if scale is None else mean * scale), sent


def plain_mean(wire: Wire, values: list[torch.Tensor]) -> torch.Tensor:
    """The mean of values that go as they are, added in the order of ranks."""
    total = torch.zeros_like(values[0])
    for payload in wire.gather([as_bytes(own) for own in values]):
        total = total + payload.view(torch.float32).view(values[0].shape)
    return total / wire.ranks
