"""A training run as a TOML file: what may be said, what is left unsaid, and where a mistake is.

Knows neither PyTorch nor codecs, so that a file can be checked anywhere.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from trinity import InputError

#: Layers, hidden size, heads, key-value heads, width of the feed-forward layer.
SHAPES: dict[str, tuple[int, int, int, int, int]] = {
    "2.7M": (6, 192, 3, 3, 512),
    "13M": (8, 384, 6, 3, 1024),
    "85M": (12, 768, 12, 12, 2048),
}
#: Video codecs on the CPU; `-fast` is the preset that tries least.
VIDEO = ("h265", "h264", "h265-fast", "h264-fast")
DATA_METHODS = ("none", "bf16", "fp8", "rtn", "sign", "powersgd", "1bit-adam", "1bit-lamb", "trinity", *VIDEO)
PIPELINE_CODECS = ("trinity", *VIDEO)
GRADIENT_METHODS = ("none", "rtn", "trinity", "residual")


@dataclass
class Model:
    """The model's shape: a name of `SHAPES`, or the five numbers."""

    shape: str = "13M"
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0

    def numbers(self) -> tuple[int, int, int, int, int]:
        named = SHAPES.get(self.shape, (0, 0, 0, 0, 0))
        given = (self.layers, self.hidden, self.heads, self.kv_heads, self.ffn)
        layers, hidden, heads, kv_heads, ffn = (own or usual for own, usual in zip(given, named))
        return layers, hidden, heads, kv_heads, ffn


@dataclass
class Text:
    """The text that `cargo xtask text` makes, and how it is cut."""

    file: str = ""
    context: int = 512
    #: Windows of every kind of held-out text, and choices of each.
    windows: int = 32
    choices: int = 64


@dataclass
class Optimizer:
    """AdamW; 1-bit LAMB brings its own update and takes these numbers."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    #: Largest norm of the mean gradient; 0 for none.
    clip: float = 1.0
    #: Steps until the full learning rate, which a cosine then takes to a tenth.
    warmup: int = 50


@dataclass
class DataParallel:
    """Replicas, and what they send of their gradients."""

    replicas: int = 4
    #: Sequences of a replica in a step.
    batch: int = 8
    method: str = "none"
    bits: float = 0.0
    #: What values are coded over: nothing, the size of their tensor, or the root of AdamW's second moment.
    scale: str = "none"
    #: Memory of a second moment kept for the scale alone, and how much of it its row's mean makes up; 0 for AdamW's own.
    scale_beta: float = 0.0
    scale_blend: float = 0.0
    #: What becomes of what coding lost: nothing, or added to the next step, raw or in scaled units.
    feedback: str = "none"
    feedback_decay: float = 1.0
    #: Everybody sends all to everybody, or shards to their owners and owners the sums to all.
    exchange: str = "gather"
    #: Bits of the sums in a two-step exchange; 0 for as many as of the gradients.
    sum_bits: float = 0.0
    rank: int = 4
    #: Share of the steps before 1-bit methods and PowerSGD begin, in which gradients go as they are.
    warmup: float = 0.0
    #: The trellis search of the line-rate codec.
    best: bool = False


@dataclass
class Pipeline:
    """Stages, and what they send at their boundaries."""

    stages: int = 1
    micro_batches: int = 4
    #: Bits per value of activations; 0 for as they are.
    activation_bits: float = 0.0
    gradient: str = "none"
    gradient_bits: float = 0.0
    #: Who codes activations, and gradients of `trinity` and `residual`: trinity, or one of `VIDEO`.
    codec: str = "trinity"
    #: Over the running size of each channel, which both sides know from what they decoded.
    channel_scale: bool = False
    #: What activations, and their gradients, are coded in: their channels, or the basis of their covariance, which is sent.
    basis: str = "channels"
    #: In the basis, activations and gradients of each position over their size, which is sent; and how much of
    #: the sizes of coefficients is taken out, from 0 to 1.
    activation_rows: bool = False
    gradient_rows: bool = False
    gradient_whiten: float = 0.0
    #: Bits begin at 1 - rise of what is asked for and end at 1 + rise, in equal steps: what is lost late is lost.
    rise: float = 0.0
    #: Share of the steps after which `residual` codes what was lost with 8-bit rounding.
    switch: float = 0.3125
    best: bool = False


@dataclass
class Run:
    out: str = "run"
    steps: int = 500
    seed: int = 1
    device: str = "cpu"
    precision: str = "fp32"
    threads: int = 0
    #: Steps between two looks at the held-out text; 0 for the end alone.
    evaluate: int = 100
    #: Steps between two checkpoints; 0 for none.
    checkpoint: int = 0
    model: Model = field(default_factory=Model)
    text: Text = field(default_factory=Text)
    optimizer: Optimizer = field(default_factory=Optimizer)
    data_parallel: DataParallel = field(default_factory=DataParallel)
    pipeline: Pipeline = field(default_factory=Pipeline)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def identity(self) -> str:
        """What two processes of a run must agree on."""
        said = self.as_dict()
        for own in ("out", "evaluate", "checkpoint", "threads"):
            del said[own]
        return json.dumps(said, sort_keys=True)


@dataclass
class _Source:
    """A file's text, to say where a key stands."""

    path: str
    lines: list[str]

    def line_of(self, section: str, key: str) -> int:
        current, within = "", 0
        for number, line in enumerate(self.lines, 1):
            header = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
            if header:
                current = header.group(1)
                if current == (f"{section}.{key}" if section else key):
                    within = number
            elif current == section and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return within

    def refuse(self, section: str, key: str, what: str, help: str) -> InputError:
        number = self.line_of(section, key)
        place = f"{self.path}:{number}" if number else self.path
        shown = f"\n{number} | {self.lines[number - 1].strip()}" if number else ""
        return InputError(f"{place}: {what}{shown}\nhelp: {help}", f"{place}: {what}", help)


def _meant(said: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(said, known, 1)
    return f"did you mean `{near[0]}`?" if near else f"expected one of: {', '.join(known)}"


def _fill(kind: type, values: dict[str, Any], section: str, source: _Source) -> Any:
    hints = get_type_hints(kind)
    made = kind()
    for key, value in values.items():
        if key not in hints:
            raise source.refuse(section, key, f"unknown key `{key}`" + (f" in [{section}]" if section else ""), _meant(key, hints))
        wanted = hints[key]
        if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
            if not isinstance(value, dict):
                raise source.refuse(section, key, f"`{key}` is a table", f"write it as [{key}]")
            setattr(made, key, _fill(wanted, value, key, source))
            continue
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not wanted:
            said = f"`{key}` is {type(value).__name__}, expected {wanted.__name__}"
            raise source.refuse(section, key, said, f"the usual value is {getattr(made, key)!r}")
        setattr(made, key, value)
    return made


def _check(run: Run, source: _Source) -> None:
    def among(section: str, key: str, value: str, known: tuple[str, ...]) -> None:
        if value not in known:
            raise source.refuse(section, key, f"`{key}` is `{value}`", _meant(value, known))

    def positive(section: str, key: str, value: float) -> None:
        if not value > 0:
            raise source.refuse(section, key, f"`{key}` is {value}", "expected a number above zero")

    data, pipe, model = run.data_parallel, run.pipeline, run.model
    among("", "device", run.device, ("cpu", "cuda"))
    among("", "precision", run.precision, ("fp32", "bf16"))
    among("data_parallel", "method", data.method, DATA_METHODS)
    among("data_parallel", "scale", data.scale, ("none", "tensor", "sqrt-v"))
    among("data_parallel", "feedback", data.feedback, ("none", "raw", "scaled"))
    among("data_parallel", "exchange", data.exchange, ("gather", "two-step"))
    among("pipeline", "gradient", pipe.gradient, GRADIENT_METHODS)
    among("pipeline", "basis", pipe.basis, ("channels", "covariance"))
    among("pipeline", "codec", pipe.codec, PIPELINE_CODECS)
    if pipe.codec != "trinity" and pipe.basis != "channels":
        raise source.refuse("pipeline", "basis", f"`basis` is `{pipe.basis}` with `{pipe.codec}`", "video codecs code channels as they are: leave `basis` out")
    if not 0 <= pipe.rise < 1:
        raise source.refuse("pipeline", "rise", f"`rise` is {pipe.rise}", "expected 0 up to 1")
    if not 0 <= pipe.gradient_whiten <= 1:
        raise source.refuse("pipeline", "gradient_whiten", f"`gradient_whiten` is {pipe.gradient_whiten}", "expected 0 to 1")
    positive("", "steps", run.steps)
    for key in ("replicas", "batch"):
        positive("data_parallel", key, getattr(data, key))
    for key in ("stages", "micro_batches"):
        positive("pipeline", key, getattr(pipe, key))
    if data.method in ("rtn", "trinity", *VIDEO):
        positive("data_parallel", "bits", data.bits)
    if data.method == "rtn" and data.bits not in (2, 4, 8):
        raise source.refuse("data_parallel", "bits", f"rtn at {data.bits} bits", "expected 2, 4 or 8")
    if pipe.gradient in ("rtn", "trinity", "residual"):
        positive("pipeline", "gradient_bits", pipe.gradient_bits)
    layers, hidden, heads, kv_heads, ffn = model.numbers()
    if not all((layers, hidden, heads, kv_heads, ffn)):
        known = ", ".join(SHAPES)
        help = f"one of {known}, or all of layers, hidden, heads, kv_heads and ffn"
        raise source.refuse("model", "shape", f"no shape `{model.shape}`", help)
    if hidden % heads or heads % kv_heads or (hidden // heads) % 2:
        raise source.refuse("model", "heads", f"{heads} heads and {kv_heads} kv_heads of {hidden}", "heads divide hidden into even parts, and kv_heads divide heads")
    if layers % pipe.stages:
        raise source.refuse("pipeline", "stages", f"{layers} layers in {pipe.stages} stages", "stages must divide layers")
    if pipe.stages > 1 and data.replicas > 1:
        raise source.refuse("data_parallel", "replicas", f"{data.replicas} replicas and {pipe.stages} stages", "one of them must be 1: a run looks at one kind of traffic")
    if pipe.stages > 1 and data.batch % pipe.micro_batches:
        raise source.refuse("pipeline", "micro_batches", f"{data.batch} sequences in {pipe.micro_batches} parts", "micro_batches must divide batch")
    if not run.text.file:
        raise source.refuse("text", "file", "no text to train on", "make one with `cargo xtask text`, or name any text file as text.file")


def check(run: Run, where: str) -> None:
    """Raises where a run that was put together otherwise cannot be."""
    _check(run, _Source(where, []))


def toml(text: str, path: object) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None


def read(path: str | Path) -> str:
    """A file's text, or a sentence that it has none."""
    try:
        return Path(path).read_text()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text") from None


def parse(text: str, path: str = "run.toml") -> Run:
    """A run from the text of a file."""
    source = _Source(path, text.splitlines())
    run: Run = _fill(Run, toml(text, path), "", source)
    _check(run, source)
    return run


def load(path: str | Path) -> Run:
    """A run from a file; paths in it are seen from the file's folder."""
    run = parse(read(path), str(path))
    folder = Path(path).parent
    run.text.file = str(folder / run.text.file)
    run.out = str(folder / run.out)
    return run
