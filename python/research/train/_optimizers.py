"""AdamW and LAMB over one row of weights, their state open to whoever codes gradients.

The second moment is what coded gradients are measured by; every rank holds it.
"""

from __future__ import annotations

import math

import torch

from ._config import Optimizer
from ._model import Flat


def learning_rate(asked: Optimizer, step: int, steps: int) -> float:
    """Linear warm-up, then a cosine to a tenth."""
    if step < asked.warmup:
        return asked.lr * (step + 1) / asked.warmup
    share = (step - asked.warmup) / max(1, steps - asked.warmup)
    return asked.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, share))))


def clipped(gradient: torch.Tensor, most: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A gradient no longer than `most`, and the norm it had."""
    norm = gradient.norm()
    return (gradient * (most / (norm + 1e-12)).clamp(max=1.0) if most > 0 else gradient), norm


class AdamW:
    """Decoupled weight decay on matrices; moments with bias correction."""

    def __init__(self, asked: Optimizer, flat: Flat) -> None:
        self.asked, self.flat = asked, flat
        self.moment = torch.zeros_like(flat.weights)
        self.second = torch.zeros_like(flat.weights)
        self.count = 0

    def root(self) -> torch.Tensor:
        """√v with bias correction, before the coming step; ones where nothing is known yet."""
        if self.count == 0:
            return torch.ones_like(self.second)
        return (self.second / (1 - self.asked.beta2**self.count)).sqrt()

    def decay(self, lr: float) -> None:
        self.flat.matrices(self.flat.weights).mul_(1 - lr * self.asked.weight_decay)

    def step(self, gradient: torch.Tensor, lr: float) -> None:
        beta1, beta2 = self.asked.beta1, self.asked.beta2
        self.count += 1
        self.moment.mul_(beta1).add_(gradient, alpha=1 - beta1)
        self.second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        self.decay(lr)
        self.flat.weights.addcdiv_(
            self.moment, self.root().add_(self.asked.eps), value=-lr / (1 - beta1**self.count)
        )

    def state(self) -> dict[str, object]:
        return {"moment": self.moment, "second": self.second, "count": self.count}

    def load(self, state: dict[str, object]) -> None:
        self.moment.copy_(state["moment"])  # type: ignore[arg-type]
        self.second.copy_(state["second"])  # type: ignore[arg-type]
        self.count = int(state["count"])  # type: ignore[call-overload]
