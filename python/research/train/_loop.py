"""The loop: batches to gradients, gradients through a method to weights, a CSV row a step.

The same steps for ranks that are simulated and for ranks that are processes.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from trinity import InputError, RunError
from . import _evaluate, _text
from ._coders import Clock
from ._config import Run
from ._methods import Method, learning_rate, method
from ._model import Flat, Llama
from ._pipeline import Boundaries, StageProcess
from ._wire import Processes, Wire, connect

COLUMNS = (
    "step", "train_bits_per_byte", "lr", "gradient_norm", "bits_per_value", "activation_bits", "gradient_bits",
    "encode_s", "decode_s", "codec_s", "step_s", "valid_bits_per_byte",
)  # fmt: skip
#: Steps whose training loss a summary takes the mean of.
LAST = 20


class Trainer:
    """Everything that a run holds; `step` advances it."""

    def __init__(self, run: Run, wire: Wire, link: Processes | None = None) -> None:
        self.run, self.wire, self.link = run, wire, link
        self.device = torch.device(run.device)
        self.corpus = _text.load(run.text.file, run.text.context)
        self.model = Llama(*run.model.numbers())
        self.model.initialize(run.seed)
        self.model.to(self.device)
        self.flat = Flat(self.model, self.device)
        self.clock = Clock(self.device)
        self.method: Method = method(run, self.flat, wire, self.clock)
        self.boundaries = Boundaries(run.pipeline, run.steps, self.clock) if run.pipeline.stages > 1 else None
        self.stage: StageProcess | None = None
        if link is not None:
            assert self.boundaries is not None
            self.stage = StageProcess(run, self.model, self.flat, self.boundaries, link)
        self.at = 0
        (link or wire).agree(f"{run.identity()} {self.corpus.sha256} {self.flat.shapes}")

    def _gradient(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradient of one replica at this step, and its loss in bits per byte."""
        run = self.run
        batch = self.corpus.batch(run.seed, self.at, rank, run.data_parallel.batch, run.text.context)
        tokens = torch.from_numpy(batch.astype("int64")).to(self.device)
        self.flat.gradient.zero_()
        parts = tokens.chunk(run.pipeline.micro_batches if self.boundaries else 1)
        if self.stage is not None:
            gradient, loss = self.stage.gradient(parts)
            return gradient, loss / math.log(2)
        total = torch.zeros((), device=self.device)
        for part in parts:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=run.precision == "bf16"):
                logits = self.model(part[:, :-1], run.pipeline.stages, self.boundaries)
            loss = F.cross_entropy(logits.float().flatten(0, 1), part[:, 1:].flatten()) / len(parts)
            loss.backward()
            total = total + loss.detach()
        return self.flat.gradient.clone(), total / math.log(2)

    def _refuse_non_finite(self, gradients: list[torch.Tensor]) -> None:
        sums = torch.stack([gradient.sum() for gradient in gradients])
        if bool(torch.isfinite(sums).all()):
            return
        for rank, gradient in zip(self.wire.local, gradients):
            wrong = (~torch.isfinite(gradient)).nonzero()
            if len(wrong):
                name = self.flat.name_at(int(wrong[0]))
                said = f"the gradient of replica {rank} is not finite at step {self.at} ({name}, {len(wrong)} values)"
                raise RunError.advised(said, "a lower optimizer.lr, a longer optimizer.warmup or a smaller optimizer.clip; nothing was sent")

    def step(self) -> dict[str, Any]:
        """One step of all local ranks; what its row says."""
        began = self.clock.now()
        lr = learning_rate(self.run.optimizer, self.at, self.run.steps)
        self.clock.begin()
        if self.boundaries is not None:
            self.boundaries.begin(self.at)
        found = [self._gradient(rank) for rank in self.wire.local]
        gradients = [gradient for gradient, _ in found]
        self._refuse_non_finite(gradients)
        sending = self.clock.now()
        with torch.no_grad():
            bits = self.method.update(gradients, lr, self.at)
        ended = self.clock.now()
        self.at += 1
        activation_bits, gradient_bits = self._boundary_bits()
        loss = float(torch.stack([loss for _, loss in found]).mean())
        return dict(zip(COLUMNS, (
            self.at, loss, lr, float(self.method.norm), bits if self.boundaries is None else 0.0,
            activation_bits, gradient_bits, self.clock.encode_s, self.clock.decode_s, ended - sending, ended - began,
            math.nan,
        )))  # fmt: skip

    def _boundary_bits(self) -> tuple[float, float]:
        """Bits per value of this step over all boundaries: activations, gradients."""
        if self.boundaries is None:
            return 0.0, 0.0
        sent = torch.tensor(self.boundaries.sent())
        values, activations, gradients = (sent if self.link is None else self.link.sums(sent)).tolist()
        return 8.0 * activations / max(1, values), 8.0 * gradients / max(1, values)

    def evaluate(self) -> dict[str, Any]:
        text = self.run.text
        return _evaluate.evaluate(self.model, self.corpus, text.windows, text.context, self.run.precision)

    def state(self) -> dict[str, Any]:
        boundaries = None if self.boundaries is None else self.boundaries.state()
        return {
            "identity": self.run.identity(), "at": self.at, "weights": self.flat.weights,
            "method": self.method.state(), "boundaries": boundaries,
        }  # fmt: skip

    def load(self, state: dict[str, Any], path: Path) -> None:
        if state["identity"] != self.run.identity():
            raise InputError(f"{path} is of another run: a setting, shape or seed differs\nhelp: use the file that the run was started with")
        self.at = state["at"]
        self.flat.weights.copy_(state["weights"])
        self.method.load(state["method"])
        if self.boundaries is not None:
            self.boundaries.load(state["boundaries"], self.device)


class Record:
    """The folder of a run: rows as they come, checkpoints that are whole or not there."""

    def __init__(self, run: Run, rank: int, resume: bool, force: bool) -> None:
        self.folder = Path(run.out)
        self.rank = rank
        self.rows_path = self.folder / "steps.csv"
        self.checkpoint_path = self.folder / f"checkpoint-{rank}.pt"
        self.folder.mkdir(parents=True, exist_ok=True)
        if resume and not self.checkpoint_path.exists():
            raise InputError(f"no checkpoint in {self.folder}\nhelp: set `checkpoint` in the run, or leave --resume out")
        if rank == 0 and self.rows_path.exists() and not resume and not force:
            raise InputError(f"{self.rows_path} exists\nhelp: --resume goes on, --force begins anew")
        self._file: Any = None

    def open(self, at: int) -> None:
        """Begins the rows, or goes on after the row of step `at`."""
        if self.rank != 0:
            return
        kept = []
        if at and self.rows_path.exists():
            with self.rows_path.open(newline="") as file:
                kept = [row for row in csv.reader(file)][1 : at + 1]
        self._file = self.rows_path.open("w", newline="")
        csv.writer(self._file).writerows([COLUMNS, *kept])

    def row(self, row: dict[str, Any]) -> None:
        if self._file is None:
            return
        shown = ["" if isinstance(v, float) and math.isnan(v) else f"{v:.6g}" for v in row.values()]
        csv.writer(self._file).writerow(shown)
        self._file.flush()

    def checkpoint(self, state: dict[str, Any]) -> None:
        part = self.checkpoint_path.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, self.checkpoint_path)

    def summary(self, summary: dict[str, Any]) -> None:
        name = "summary.json" if self.rank == 0 else f"summary-{self.rank}.json"
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(summary, indent=1) + "\n")
        os.replace(part, self.folder / name)


def train(run: Run, *, resume: bool = False, force: bool = False, stop_after: int | None = None, say: Any = None) -> dict[str, Any]:
    """Trains as a run says; returns its summary. ``stop_after`` ends early, at a checkpoint."""
    if run.device == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device is here\nhelp: device = \"cpu\"")
    if run.threads:
        torch.set_num_threads(run.threads)
    wire, link = connect(run.data_parallel.replicas, run.pipeline.stages)
    rank = wire.local[0] if link is None else link.rank
    record = Record(run, rank, resume, force)
    trainer = Trainer(run, wire, link)
    if resume:
        trainer.load(torch.load(record.checkpoint_path, map_location="cpu", weights_only=True), record.checkpoint_path)
    record.open(trainer.at)
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    last = run.steps if stop_after is None else min(run.steps, stop_after)
    while trainer.at < last:
        row = trainer.step()
        if run.evaluate and trainer.at % run.evaluate == 0 and trainer.at < run.steps:
            row["valid_bits_per_byte"] = trainer.evaluate()["bits_per_byte"]
        if run.checkpoint and (trainer.at % run.checkpoint == 0 or trainer.at == last):
            record.checkpoint(trainer.state())
        if trainer.at == run.steps:
            row["valid_bits_per_byte"] = (final := trainer.evaluate())["bits_per_byte"]
        record.row(row)
        rows.append(row)
        if say is not None:
            say(row)
    if trainer.at < run.steps:
        return {"step": trainer.at}
    mean = lambda key: sum(row[key] for row in rows) / max(1, len(rows))  # noqa: E731
    middle = lambda key: sorted(row[key] for row in rows)[len(rows) // 2] if rows else 0.0  # noqa: E731
    # Values of a step are as many in each.
    rate = lambda values, key: values / middle(key) if middle(key) > 0 else 0.0  # noqa: E731
    recent = rows[-LAST:]
    summary = {
        "steps": run.steps, "seed": run.seed, "parameters": trainer.flat.total,
        "valid_bits_per_byte": final["bits_per_byte"], "windows_interval": final["windows_interval"],
        "kinds": final["kinds"],
        "choices": _evaluate.choose(trainer.model, trainer.corpus, run.text.choices, run.precision),
        "train_bits_per_byte": sum(row["train_bits_per_byte"] for row in recent) / max(1, len(recent)),
        "bits_per_value": mean("bits_per_value"), "activation_bits": mean("activation_bits"),
        "gradient_bits": mean("gradient_bits"),
        "codec_s": middle("codec_s"), "step_s": middle("step_s"),
        "encode_values_per_s": rate(trainer.clock.encoded, "encode_s"),
        "decode_values_per_s": rate(trainer.clock.decoded, "decode_s"),
        "seconds": time.perf_counter() - began,
        "weights_sha256": hashlib.sha256(trainer.flat.weights.cpu().numpy().tobytes()).hexdigest(),
        "text_sha256": trainer.corpus.sha256, "run": run.as_dict(),
    }  # fmt: skip
    record.summary(summary)
    return summary
