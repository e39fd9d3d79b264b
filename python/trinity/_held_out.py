"""What of a calibration's gain stays on batches that it did not see."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import _coded
from ._coded import StrPath
from ._errors import InputError
from ._progress import Report


def numbers(answer: Any, torch: Any) -> tuple[Any, bool] | None:
    """What a model answers as rows of numbers, and whether they are logits; ``None`` where it answers no numbers."""
    logits: Any = getattr(answer, "logits", None)
    if logits is None and isinstance(answer, dict):
        logits = answer.get("logits")
    are_logits = logits is not None and torch.is_tensor(logits)
    if not are_logits:
        # Outputs of transformers are dictionaries whose first value is the answer.
        values = tuple(answer.values()) if isinstance(answer, dict) else answer
        logits = values[0] if isinstance(values, (list, tuple)) and values else values
    if not torch.is_tensor(logits) or not logits.is_floating_point() or logits.ndim == 0:
        return None
    return logits.float().reshape(-1, logits.shape[-1]), are_logits


@dataclass(frozen=True)
class Gain:
    """What a model loses coded at one rate, without a calibration and with it."""

    batches: int
    bits: float
    #: ``nats per answer`` (Kullback–Leibler divergence from what the model answers) or ``relative squared error``.
    measure: str
    lost_plain: float
    lost_calibrated: float

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        what = f"on {self.batches} batches that were held out, at {self.bits:g} bits per value: {self.measure} lost"
        return f"{what} {self.lost_plain:.4g} coded, {self.lost_calibrated:.4g} calibrated"

    @classmethod
    def measured(
        cls, model: Any, batches: Sequence[Any], path: StrPath, bits: float, answer: Callable[[Any, Any], Any], report: Report | None
    ) -> Gain:
        """Codes a copy of the model with the calibration at ``path`` and without, and holds its answers against the model's.

        ``answer`` runs a model over a batch and gives its `numbers`.
        """
        state = {name: one.detach().cpu() for name, one in model.state_dict().items()}
        twin = copy.deepcopy(model)
        lost: dict[bool, float] = {}
        are_logits = False
        for calibrated in (False, True):
            calibrate = path if calibrated else None
            quiet = False if report is None else report
            coded = _coded.encode(state, bits=bits, calibrate=calibrate, measure=False, progress=quiet)
            twin.load_state_dict(_coded.decode(coded, into="torch", progress=False))
            total, of = 0.0, 0.0
            for batch in batches:
                first, second = answer(model, batch), answer(twin, batch)
                if first is None or second is None:
                    raise InputError("the model answers no numbers")
                are_logits = first[1]
                error, size = _distance(first[0], second[0], are_logits)
                total, of = total + error, of + size
            lost[calibrated] = total / max(of, 1e-30)
        measure = "nats per answer" if are_logits else "relative squared error"
        return cls(len(batches), bits, measure, lost[False], lost[True])


def _distance(first: Any, second: Any, are_logits: bool) -> tuple[float, float]:
    """How far answers are from those of the model itself, and what that is a share of."""
    if are_logits:
        p, q = first.log_softmax(-1), second.log_softmax(-1)
        return float((p.exp() * (p - q)).sum()), float(p.shape[0])
    return float((first - second).pow(2).sum()), float(first.pow(2).sum())
