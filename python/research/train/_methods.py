"""From the ranks' gradients to new weights: every method of data-parallel training.

`Averaged` gives AdamW a mean that was coded on its way; PowerSGD and the 1-bit
methods follow their papers. All count the bytes that a rank sends per step. The second
moment of AdamW is what coded gradients are measured by; every rank holds it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ._coders import Cast, Clock, Coder, Fp8, Line, Rtn, Sign, Timed, Video
from ._config import VIDEO, DataParallel, Optimizer, Run
from ._exchange import Exchange, Feedback, plain_mean
from ._model import Flat
from ._wire import Wire

#: A scale is at least this part of the mean of its tensor, and this of the mean of all: weights that hardly
#: ever have a gradient would take all bits when they have one, and so would tensors of which nothing is known.
FLOOR, FLOOR_OF_ALL = 0.05, 0.02


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


def _coder(asked: DataParallel, flat: Flat, rows: tuple[int, int], bits: float) -> Coder:
    bits = bits or asked.bits
    if asked.method == "rtn":
        return Rtn(int(bits))
    if asked.method == "fp8":
        return Fp8()
    if asked.method == "trinity":
        return Line(bits, asked.best)
    if asked.method in VIDEO:
        return Video(asked.method, bits)
    if asked.method in ("sign", "1bit-adam", "1bit-lamb"):
        return Sign(_spans_within(flat, rows))
    return Cast(torch.bfloat16 if asked.method == "bf16" else torch.float32)


def _spans_within(flat: Flat, rows: tuple[int, int]) -> list[tuple[int, int]]:
    """Where tensors lie among the values of some rows."""
    first, last = rows[0] * flat.width, rows[1] * flat.width
    cut = [(max(a, first) - first, min(b, last) - first) for a, b in flat.spans[: flat.matrix_count]]
    return [(a, b) for a, b in cut if a < b]


class Method:
    """What all methods share: who sends, what, and where weights are."""

    def __init__(self, run: Run, flat: Flat, wire: Wire, clock: Clock) -> None:
        self.run, self.asked, self.flat, self.wire, self.clock = run, run.data_parallel, flat, wire, clock
        self.optimizer = AdamW(run.optimizer, flat)
        self.vector_bytes = 4.0 * (flat.total - flat.matrix_values)
        self.norm = torch.zeros(())

    def exchange(self, kind: str, feedback: Feedback) -> Exchange:
        def make(first: int, last: int, bits: float) -> Coder:
            return Timed(_coder(self.asked, self.flat, (first, last), self._matrix_bits(bits)), self.clock)

        return Exchange(self.wire, make, kind, feedback, self.asked.sum_bits)

    def _matrix_bits(self, bits: float) -> float:
        """The rate of matrices with which all values, vectors as they are, keep to the rate asked for."""
        if self.asked.method == "rtn":
            return bits or self.asked.bits
        bits = bits or self.asked.bits
        if bits <= 0:
            return bits
        return max(0.02, (bits * self.flat.total - 8 * self.vector_bytes) / self.flat.matrix_values)

    def vectors(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return plain_mean(self.wire, [self.flat.vectors(one) for one in gradients])

    def bits(self, sent_bytes: float) -> float:
        return 8.0 * sent_bytes / self.flat.total

    def apply(self, mean: torch.Tensor, lr: float) -> None:
        mean, self.norm = clipped(mean, self.run.optimizer.clip)
        self.optimizer.step(mean, lr)

    def state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.optimizer.load(state["optimizer"])

    def update(self, gradients: list[torch.Tensor], lr: float, step: int) -> float:
        """New weights from the gradients of the local ranks; returns bits per value that a rank sent."""
        raise NotImplementedError


class Averaged(Method):
    """AdamW on the mean of coded gradients."""

    def __init__(self, run: Run, flat: Flat, wire: Wire, clock: Clock) -> None:
        super().__init__(run, flat, wire, clock)
        asked = self.asked
        self.coded = self.exchange(asked.exchange, Feedback(asked.feedback, asked.feedback_decay))
        self.tensor_scale: torch.Tensor | None = None
        self.slow: torch.Tensor | None = None

    def _scale(self) -> torch.Tensor | None:
        if self.asked.scale == "none":
            return None
        if self.asked.scale == "tensor":
            return self.tensor_scale
        root = self._root()
        return torch.maximum(root, self._floor(root)).clamp_min_(1e-30)

    def _root(self) -> torch.Tensor:
        """The root of the second moment, of AdamW or of a longer memory, moved towards its row's."""
        beta, blend, count = self.asked.scale_beta, self.asked.scale_blend, self.optimizer.count
        root = self.flat.matrices(self.optimizer.root())
        if self.slow is not None:
            root = (self.slow / (1 - beta**count)).sqrt()
        if blend:
            square = root.square()
            root = ((1 - blend) * square + blend * square.mean(1, keepdim=True)).sqrt()
        return root

    def _see(self, matrices: torch.Tensor) -> None:
        """Keeps the longer memory, of the mean that all ranks decoded."""
        beta = self.asked.scale_beta
        if beta:
            self.slow = torch.zeros_like(matrices) if self.slow is None else self.slow
            self.slow.mul_(beta).addcmul_(matrices, matrices, value=1 - beta)

    def _of_tensor(self, rows: torch.Tensor) -> torch.Tensor:
        """For each row the mean over all rows of its tensor."""
        sums = torch.zeros(self.flat.matrix_count, device=rows.device).index_add_(0, self.flat.row_tensor, rows)
        return (sums / self.flat.tensor_rows)[self.flat.row_tensor]

    def _floor(self, root: torch.Tensor) -> torch.Tensor:
        """The least scale, for each row."""
        rows = root.mean(1)
        return torch.maximum(FLOOR * self._of_tensor(rows), FLOOR_OF_ALL * rows.mean())[:, None]

    def update(self, gradients: list[torch.Tensor], lr: float, step: int) -> float:
        matrices, sent = self.coded.mean([self.flat.matrices(one) for one in gradients], self._scale())
        mean = torch.cat((matrices.reshape(-1), self.vectors(gradients)))
        self._see(matrices)
        if self.asked.scale == "tensor":
            root = self._of_tensor(matrices.square().mean(1)).sqrt()
            self.tensor_scale = root.clamp_min(FLOOR_OF_ALL * root.mean()).clamp_min(1e-30)[:, None]
        self.apply(mean, lr)
        return self.bits(sent + self.vector_bytes)

    def state(self) -> dict[str, Any]:
        return super().state() | {"coded": self.coded.state(), "tensor_scale": self.tensor_scale, "slow": self.slow}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        device = self.flat.weights.device
        self.coded.load(state["coded"], device)
        for name in ("tensor_scale", "slow"):
            setattr(self, name, None if state[name] is None else state[name].to(device))


class PowerSgd(Method):
    """Low-rank factors with error feedback and a warm start, as torch's hook computes them.

    Vogels et al. 2019. Factors go in single precision; tensors of one shape are worked on together.
    """

    def __init__(self, run: Run, flat: Flat, wire: Wire, clock: Clock) -> None:
        super().__init__(run, flat, wire, clock)
        self.begins = int(run.steps * self.asked.warmup)
        self.by_shape: dict[tuple[int, ...], list[int]] = {}
        for at, shape in enumerate(flat.shapes[: flat.matrix_count]):
            self.by_shape.setdefault(shape, []).append(at)
        generator = torch.Generator().manual_seed(run.seed)
        device = flat.weights.device
        self.q = {
            shape: torch.randn(len(at), shape[1], self._rank(shape), generator=generator).to(device)
            for shape, at in self.by_shape.items()
        }
        self.lost = [torch.zeros(flat.matrix_values, device=device) for _ in wire.local]

    def _rank(self, shape: tuple[int, ...]) -> int:
        return min(self.asked.rank, *shape)

    def update(self, gradients: list[torch.Tensor], lr: float, step: int) -> float:
        if step < self.begins:
            self.apply(plain_mean(self.wire, gradients), lr)
            return 32.0
        flat = self.flat
        meant = [flat.matrices(one).reshape(-1) + lost for one, lost in zip(gradients, self.lost)]
        mean, sent = torch.empty_like(meant[0]), 0.0
        for shape, places in self.by_shape.items():
            stacks = [torch.stack([flat.each_matrix(one)[at] for at in places]) for one in meant]
            p = plain_mean(self.wire, [stack @ self.q[shape] for stack in stacks])
            p = torch.linalg.qr(p)[0]
            q = plain_mean(self.wire, [stack.transpose(1, 2) @ p for stack in stacks])
            self.q[shape] = q
            sent += 4.0 * (p.numel() + q.numel())
            approximation = p @ q.transpose(1, 2)
            for at, own in zip(places, approximation):
                first, last = flat.spans[at]
                mean[first:last] = own.reshape(-1)
        self.lost = [one - mean for one in meant]
        self.apply(torch.cat((mean, self.vectors(gradients))), lr)
        return self.bits(sent + self.vector_bytes)

    def state(self) -> dict[str, Any]:
        return super().state() | {"q": self.q, "lost": self.lost}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        device = self.flat.weights.device
        self.q = {shape: q.to(device) for shape, q in state["q"].items()}
        self.lost = [lost.to(device) for lost in state["lost"]]


class OneBit(Method):
    """1-bit Adam (Tang et al. 2021) and 1-bit LAMB (Li et al. 2021).

    After a warm-up the second moment is frozen and the momentum is sent, one bit
    a value, with error feedback where it is sent and where it is summed. 1-bit
    LAMB keeps the mean of every layer's coefficient and moves it with the fresh
    second moment, in the bounds its authors use.
    """

    COEFFICIENT_BETA = 0.9
    LEAST, MOST, CHANGE = 0.5, 4.0, 0.1
    TRUST = (0.01, 10.0)

    def __init__(self, run: Run, flat: Flat, wire: Wire, clock: Clock) -> None:
        super().__init__(run, flat, wire, clock)
        self.begins = max(1, int(run.steps * self.asked.warmup))
        self.lamb = self.asked.method == "1bit-lamb"
        self.coded = self.exchange("two-step", Feedback("raw", 1.0))
        self.frozen: torch.Tensor | None = None
        self.fresh = torch.zeros_like(flat.weights)
        device = flat.weights.device
        self.coefficient = torch.zeros(len(flat.spans), device=device)
        self.factor = torch.ones(len(flat.spans), device=device)

    def _each(self, row: torch.Tensor) -> list[torch.Tensor]:
        return [row[first:last] for first, last in self.flat.spans]

    def _move(self, update: torch.Tensor, coefficients: torch.Tensor, lr: float) -> None:
        for weights, own, coefficient in zip(self._each(self.flat.weights), self._each(update), coefficients):
            weights.sub_(own * (lr * coefficient))

    def _with_decay(self, update: torch.Tensor) -> torch.Tensor:
        update = update.clone()
        last = self.flat.matrix_values
        update[:last] += self.run.optimizer.weight_decay * self.flat.weights[:last]
        return update

    def _lamb_step(self, gradient: torch.Tensor, lr: float) -> None:
        opt, asked = self.optimizer, self.run.optimizer
        opt.count += 1
        opt.moment.mul_(asked.beta1).add_(gradient, alpha=1 - asked.beta1)
        opt.second.mul_(asked.beta2).addcmul_(gradient, gradient, value=1 - asked.beta2)
        update = self._with_decay(opt.moment / (opt.second.sqrt() + asked.eps))
        norms = torch.stack(torch._foreach_norm(self._each(self.flat.weights)))
        trust = (norms / torch.stack(torch._foreach_norm(self._each(update))).clamp_min(1e-12)).clamp(*self.TRUST)
        beta = self.COEFFICIENT_BETA
        self.coefficient = beta * self.coefficient + (1 - beta) * trust
        self._move(update, trust, lr)

    def _warm(self, gradients: list[torch.Tensor], lr: float) -> float:
        mean = plain_mean(self.wire, gradients)
        if self.lamb:
            mean, self.norm = clipped(mean, self.run.optimizer.clip)
            self._lamb_step(mean, lr)
        else:
            self.apply(mean, lr)
        return 32.0

    def update(self, gradients: list[torch.Tensor], lr: float, step: int) -> float:
        if step < self.begins:
            return self._warm(gradients, lr)
        opt, asked, flat = self.optimizer, self.run.optimizer, self.flat
        if self.frozen is None:
            self.frozen = opt.second.sqrt() if self.lamb else opt.root()
            self.frozen = self.frozen + asked.eps
            self.fresh = opt.second.clone()
        before = opt.moment.clone()
        moments = []
        for gradient in gradients:
            own, self.norm = clipped(gradient, asked.clip)
            moments.append(asked.beta1 * before + (1 - asked.beta1) * own)
        matrices, sent = self.coded.mean([flat.matrices(one) for one in moments], None)
        opt.moment = torch.cat((matrices.reshape(-1), self.vectors(moments)))
        opt.count += 1
        if self.lamb:
            self._frozen_lamb(before, lr)
        else:
            opt.decay(lr)
            flat.weights.sub_(lr * opt.moment / self.frozen)
        return self.bits(sent + self.vector_bytes)

    def _frozen_lamb(self, before: torch.Tensor, lr: float) -> None:
        opt, asked = self.optimizer, self.run.optimizer
        assert self.frozen is not None
        rebuilt = (opt.moment - asked.beta1 * before) / (1 - asked.beta1)
        self.fresh.mul_(asked.beta2).addcmul_(rebuilt, rebuilt, value=1 - asked.beta2)
        plain = opt.moment / self.frozen
        update = self._with_decay(plain)
        ratio = self.frozen / (self.fresh.sqrt() + asked.eps)
        factor = torch.stack([own.max() for own in self._each(ratio)])
        norms = [torch.stack(torch._foreach_norm(self._each(row))) for row in (plain, update)]
        share = (norms[0] / norms[1].clamp_min(1e-12)).clamp(max=1.0)
        factor = (factor * share + (1 - share)).clamp(self.LEAST, self.MOST)
        factor = torch.minimum(torch.maximum(factor, self.factor * (1 - self.CHANGE)), self.factor * (1 + self.CHANGE))
        self.factor = factor
        self._move(update, self.coefficient * factor, lr)

    def state(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("frozen", "fresh", "coefficient", "factor")}
        return super().state() | {"coded": self.coded.state(), "own": own}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        device = self.flat.weights.device
        self.coded.load(state["coded"], device)
        for name, value in state["own"].items():
            setattr(self, name, None if value is None else value.to(device))


def method(run: Run, flat: Flat, wire: Wire, clock: Clock) -> Method:
    kinds: dict[str, type[Method]] = {"powersgd": PowerSgd, "1bit-adam": OneBit, "1bit-lamb": OneBit}
    return kinds.get(run.data_parallel.method, Averaged)(run, flat, wire, clock)
