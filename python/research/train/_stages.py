"""A stage of a pipeline as a process: activations come from the stage before, gradients from the one after.

Micro-batches go through one by one, as in the simulation, and end with its bits. Gradients
of all stages are put together for the step, so that every process holds all weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ._config import Run
from ._model import Flat, Llama
from ._pipeline import Boundaries, Boundary, rows_of
from ._wire import Processes


class StageProcess:
    """The stage whose number is this process' rank."""

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
