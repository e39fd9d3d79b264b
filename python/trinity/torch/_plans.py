"""Tensors of one place, step after step: a plan of the line-rate codec is chosen rarely and used again.

Choosing a plan costs far more than coding under one. Values are brought to one
scale first, which is sent, so that a plan that fitted the last step fits the next;
that it does is checked by what it takes, and it is chosen anew where it does not.
"""

from __future__ import annotations

import struct

import torch

from .. import _core
from .._errors import InputError

#: Columns of the matrix that a tensor is folded to.
_COLS = 256
#: Rows that a plan is chosen from, in bands from all over the tensor.
_ROWS, _BAND = 1024, 64
#: Steps after which a plan is chosen anew.
_OLD = 200
#: A step's bytes over those there are, below which the next one is coded finer, and by how much.
_SPARE, _FINER = 0.95, 0.97
#: What a step is coded coarser by where it takes too much, and how often before a plan is chosen anew.
_COARSER, _TRIES = 1.12, 8
HEAD_BYTES = 4


class Planned:
    """A tensor's coder: keeps its plan from step to step."""

    def __init__(self, bits: float, best: bool) -> None:
        self.bits, self.best = bits, best
        self.head = b""
        self.rows = self.age = 0
        self.gain = 1.0
        #: How often a plan was chosen.
        self.chosen = 0

    def _choose(self, values: torch.Tensor) -> None:
        sample = values
        if values.shape[0] > 2 * _ROWS:
            starts = torch.linspace(0, values.shape[0] - _BAND, _ROWS // _BAND).long().tolist()
            sample = torch.cat([values[at : at + _BAND] for at in starts])
        flat = sample.contiguous().reshape(-1)
        # A little below the rate: what is not in the sample may need more.
        self.rows, self.age, self.gain = values.shape[0], 0, 1.0
        # Values over a gain would have other means in steps than the plan's.
        shape = (sample.shape[0], _COLS, self.rows)
        self.head = _core.line_plan_of_sample(flat.numpy(), shape, 0.98 * self.bits, self.best, means=False)
        self.chosen += 1

    def encode(self, x: torch.Tensor, room: int) -> bytes | None:
        """At most ``room`` bytes, or ``None`` where that cannot be reached."""
        flat = x.reshape(-1).float()
        rows = -(-flat.numel() // _COLS)
        values = torch.zeros(rows * _COLS)
        values[: flat.numel()] = flat
        scale = float(flat.square().mean().sqrt())
        if scale == 0.0:
            return struct.pack("<f", 0.0)
        values = (values / scale).reshape(rows, _COLS)
        for renewed in (False, True):
            if renewed or not self.head or self.rows != rows or self.age >= _OLD:
                try:
                    self._choose(values)
                except InputError:
                    # No plan is short enough for so few values.
                    return None
            # Who reads a head wants to see that a stream of its size can follow.
            plan = self.head + bytes(values.numel() // 256)
            for _ in range(_TRIES):
                stream = _core.line_encode(plan, (values / self.gain).reshape(-1).numpy())
                if HEAD_BYTES + len(stream) <= room:
                    self.age += 1
                    payload = struct.pack("<f", scale * self.gain) + stream
                    if len(payload) < _SPARE * room:
                        self.gain *= _FINER
                    return payload
                self.gain *= _COARSER
        return None


def decode(payload: bytes, values: int) -> torch.Tensor:
    """What `Planned.encode` was given, flat."""
    (scale,) = struct.unpack("<f", payload[:HEAD_BYTES])
    if len(payload) == HEAD_BYTES:
        return torch.zeros(values)
    _, _, memory = _core.line_decode(payload[HEAD_BYTES:])
    found: torch.Tensor = torch.frombuffer(memory, dtype=torch.float32)[:values] * scale
    return found
