"""Coded tensors: `Encoded`, and the way there and back."""

from __future__ import annotations

import builtins
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from . import _arrays, _core, executors
from ._arrays import Kind
from ._errors import InputError
from ._progress import Bar, Report

Progress = bool | Report | None
StrPath = str | os.PathLike[str]
#: Patterns of names that stay exact, and of such with bits or a codec of their own.
Rules = tuple["str | Iterable[str]", "Mapping[str, float] | None", "Mapping[str, str] | None"]


class Encoded:
    """One coded tensor.

    ``bytes`` is a whole ``.tri`` container: written to a file, ``trinity decode``
    reads it. Pickles, compares and hashes by what it holds.

    >>> import numpy as np, trinity
    >>> x = np.sin(np.arange(64 * 96, dtype=np.float32)).reshape(64, 96)
    >>> e = trinity.encode(x, bits=3)
    >>> e.shape, e.dtype, e.bits_per_value <= 3
    ((64, 96), 'f32', True)
    >>> trinity.decode(e).shape
    (64, 96)
    """

    bytes: builtins.bytes
    #: What it is called in a file.
    name: str
    #: What the tensor is for: weight, kv-cache, activation, …
    class_: str
    #: The number format of the values: f32, bf16, f8e4m3, …
    dtype: str
    shape: tuple[int, ...]
    #: The codec that decodes it.
    codec: str
    #: Why it is kept to the bit although a loss was asked for, else ``None``.
    exact: str | None
    #: Squared error over energy; ``None`` where it was not measured.
    nmse: float | None
    snr_db: float | None
    mae: float | None
    max_abs_error: float | None
    #: The library it was an array of, and becomes again: ``numpy`` or ``torch``.
    kind: Kind
    #: Seconds that coding took, everything in this module left out.
    codec_s: float

    __slots__ = tuple(__annotations__)

    def __init__(self, bytes: builtins.bytes, kind: Kind = "numpy") -> None:
        """Of the bytes of a container with one tensor."""
        ((_, *rest),) = _core.describe([bytes])
        self._fill(bytes, rest, kind)

    def _fill(self, container: builtins.bytes, rest: Sequence[Any], kind: Kind) -> None:
        self.bytes = container
        self.name, self.class_, self.dtype, shape, self.codec, self.exact, errors, self.codec_s = rest
        self.shape = tuple(shape)
        self.nmse, self.snr_db, self.mae, self.max_abs_error = errors or (None, None, None, None)
        self.kind = kind

    @classmethod
    def _of(cls, coded: Sequence[Any], kind: Kind = "numpy") -> Encoded:
        self = cls.__new__(cls)
        self._fill(coded[0], coded[1:], kind)
        return self

    @property
    def values(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def bits_per_value(self) -> float:
        """The rate, everything counted: also the container's index and checksums."""
        return 8.0 * len(self.bytes) / max(self.values, 1)

    @property
    def rate(self) -> float:
        """The same as ``bits_per_value``."""
        return self.bits_per_value

    @property
    def error(self) -> float | None:
        """The same as ``nmse``."""
        return self.nmse

    def decode(self, into: Kind | None = None) -> Any:
        """The tensor again; see `trinity.decode`."""
        return decode(self, into=into)

    def save(self, path: StrPath, *, force: bool = False) -> None:
        """Writes it to a file that the command reads, too."""
        save(path, self, force=force)

    def __len__(self) -> int:
        return len(self.bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        errors = None if self.nmse is None else (self.nmse, self.snr_db, self.mae, self.max_abs_error)
        rest = (self.name, self.class_, self.dtype, list(self.shape), self.codec, self.exact, errors)
        return (_restore, ((self.bytes, *rest, self.codec_s), self.kind))

    def __repr__(self) -> str:
        error = "" if self.nmse is None else f", NMSE {self.nmse:.3g}"
        why = "" if self.exact is None else f", exact: {self.exact}"
        shape = "×".join(map(str, self.shape)) or "scalar"
        return (
            f"<Encoded `{self.name}` {shape} {self.dtype}, {self.codec}: "
            f"{len(self.bytes)} bytes, {self.bits_per_value:.4f} bits/value{error}{why}>"
        )


def _restore(coded: Sequence[Any], kind: Kind) -> Encoded:
    return Encoded._of(coded, kind)


def allow_loading() -> None:
    """Lets ``torch.load`` read an `Encoded` with ``weights_only=True``, its default."""
    allow = getattr(getattr(_arrays.torch_module(), "serialization", None), "add_safe_globals", None)
    if allow is not None:
        allow([Encoded, _restore])


def _target(
    bits: float | None, nmse: float | None, qp: float | None, lossless: bool
) -> tuple[str, float]:
    given = [
        (name, amount)
        for name, amount in (("bits", bits), ("nmse", nmse), ("qp", qp), ("lossless", lossless or None))
        if amount is not None
    ]
    if len(given) != 1:
        named = " and ".join(name for name, _ in given) or "none"
        said = f"expected one of bits=, nmse=, qp= and lossless=True, found {named}"
        raise InputError.advised(said, "trinity.encode(x, bits=3)")
    name, amount = given[0]
    return name, float(amount)


def _asked(
    codec: str | None,
    target: tuple[str, float],
    *,
    allocate: str | None = None,
    all: bool = True,
    strict: bool = False,
    measure: bool = True,
    rules: Rules | None = None,
    calibrate: StrPath | None = None,
) -> dict[str, Any]:
    exclude, bits_for, codec_for = rules or ((), {}, {})
    return {
        "exclude": [exclude] if isinstance(exclude, str) else list(exclude or ()),
        "bits_for": [(str(pattern), float(bits)) for pattern, bits in (bits_for or {}).items()],
        "codec_for": [(str(pattern), str(name)) for pattern, name in (codec_for or {}).items()],
        "calibrate": None if calibrate is None else os.fspath(calibrate),
        "codec": codec,
        "target": target[0],
        "amount": target[1],
        # Where a calibration knows what bits save, they are shared out by that.
        "allocate": allocate or ("equal" if calibrate is None else "equal-slope"),
        "all": all,
        "strict": strict,
        "measure": measure,
    }


class _Options(TypedDict, total=False):
    """What `encode` takes beside the arrays, whatever they come in."""

    bits: float | None
    nmse: float | None
    qp: float | None
    lossless: bool
    codec: str | None
    class_: str | None
    strict: bool
    measure: bool
    progress: Progress
    executor: Any


class _Named(_Options, total=False):
    name: str


class _OfModel(_Options, total=False):
    allocate: str
    all: bool
    exclude: str | Iterable[str]
    bits_for: Mapping[str, float] | None
    codec_for: Mapping[str, str] | None
    calibrate: StrPath | None


@overload
def encode(x: Mapping[str, Any], **options: Unpack[_OfModel]) -> dict[str, Encoded]: ...


@overload
def encode(x: list[Any] | tuple[Any, ...], **options: Unpack[_Named]) -> list[Encoded]: ...


@overload
def encode(x: Any, **options: Unpack[_Named]) -> Encoded: ...


def encode(
    x: Any,
    *,
    bits: float | None = None,
    nmse: float | None = None,
    qp: float | None = None,
    lossless: bool = False,
    codec: str | None = None,
    name: str = "tensor",
    class_: str | None = None,
    allocate: str | None = None,
    all: bool | None = None,
    exclude: str | Iterable[str] = (),
    bits_for: Mapping[str, float] | None = None,
    codec_for: Mapping[str, str] | None = None,
    calibrate: StrPath | None = None,
    strict: bool = False,
    measure: bool = True,
    progress: Progress = None,
    executor: Any = None,
) -> Any:
    """Codes an array, a list of arrays, or a dictionary of them.

    Exactly one target: ``bits`` per value, everything counted, met within 1 %
    and never exceeded; ``nmse``, squared error over energy; ``qp``, for video
    codecs; or ``lossless=True``. The codec is ``trinity`` (``zstd`` for every
    bit) unless another is named, see `trinity.codecs`.

    Takes NumPy arrays, PyTorch tensors and whatever speaks DLPack, without a
    copy where values lie in a row. Arrays with NaN or an infinity, and such of
    fewer than 256 values, are kept to the bit (``Encoded.exact`` says why);
    ``strict=True`` refuses the former. With ``measure=False`` the error is not
    measured, which saves a decoding. ``executor`` shares out a list or a
    dictionary; see `trinity.executors`.

    A dictionary is a model, and coded as ``trinity encode`` codes its file, to the
    same bytes: norms, biases, vectors and integers stay exact unless ``all``, a
    tensor that holds what another holds is coded once, ``bits`` hold for the
    whole, and ``exclude``, ``bits_for`` and ``codec_for`` name tensors that are
    treated otherwise (see `trinity.plan`, which says what would be done).

    >>> import numpy as np, trinity
    >>> x = np.sin(np.arange(4096, dtype=np.float32)).reshape(64, 64)
    >>> trinity.encode(x, nmse=0.01).nmse <= 0.01
    True
    >>> [len(e.shape) for e in trinity.encode([x, x[0]], lossless=True)]
    [2, 1]
    >>> trinity.encode(x)
    Traceback (most recent call last):
        ...
    trinity._errors.InputError: expected one of bits=, nmse=, qp= and lossless=True, found none
    help: trinity.encode(x, bits=3)
    """
    target = _target(bits, nmse, qp, lossless)
    if isinstance(x, Mapping):
        keywords: dict[str, Any] = {"strict": strict, "measure": measure, "rules": (exclude, bits_for, codec_for)}
        asked = _asked(codec, target, allocate=allocate, all=bool(all), calibrate=calibrate, **keywords)
        return _encode_model(x, class_, asked, progress, executor)
    given = {"allocate": allocate, "all": all, "exclude": exclude, "bits_for": bits_for, "codec_for": codec_for}
    for option, value in {**given, "calibrate": calibrate}.items():
        if value:
            raise InputError(f"{option}= is for the tensors of a model: a dictionary of arrays")
    asked = _asked(codec, target, strict=strict, measure=measure)
    if isinstance(x, (list, tuple)):
        arrays = list(x)
        names = [name] * len(arrays)
    else:
        names, arrays = [name], [x]
    if executor is not None:
        parts = executors.encode(executor, names, arrays, class_, asked)
        coded = [Encoded._of(one, _arrays.kind_of(array)) for one, array in zip(parts, arrays)]
    else:
        coded = _encode(names, arrays, class_, asked, progress)
    return coded if isinstance(x, (list, tuple)) else coded[0]


def _encode_model(
    x: Mapping[str, Any], class_: str | None, asked: dict[str, Any], progress: Progress, executor: Any
) -> dict[str, Encoded]:
    texts: dict[str, str] = {}
    plain = [_arrays.for_file(one, str(name), class_, texts) for name, one in x.items()]
    if executor is not None:
        coded = executors.encode_model(executor, plain, asked, texts)
    else:
        with Bar(progress) as bar:
            coded, _ = _core.encode_model(plain, asked, texts, bar.report)
    return {name: Encoded._of(one, _arrays.kind_of(array)) for (name, array), one in zip(x.items(), coded)}


def plan(
    tensors: Mapping[str, Any] | StrPath,
    *,
    bits: float | None = None,
    nmse: float | None = None,
    qp: float | None = None,
    lossless: bool = False,
    codec: str | None = None,
    allocate: str | None = None,
    all: bool = False,
    class_: str | None = None,
    exclude: str | Iterable[str] = (),
    bits_for: Mapping[str, float] | None = None,
    codec_for: Mapping[str, str] | None = None,
    calibrate: StrPath | None = None,
) -> list[dict[str, Any]]:
    """What `encode`, `save` and `encode_file` would do with a model, by kinds of tensors.

    Patterns are over names, ``*`` for any run of characters and ``?`` for one; one
    with neither matches every name that contains it. What is excluded stays exact,
    and what has bits of its own is beside the rate of the others.

    >>> import numpy as np, trinity
    >>> model = {"up.weight": np.ones((64, 64), np.float32), "up.bias": np.ones(512, np.float32)}
    >>> [(row["kind"], row["treatment"]) for row in trinity.plan(model, bits=3)]
    [('linear', 'trinity'), ('bias', 'exact')]
    """
    target, rules = _target(bits, nmse, qp, lossless), (exclude, bits_for, codec_for)
    asked = _asked(codec, target, allocate=allocate, all=all, rules=rules, calibrate=calibrate)
    texts: dict[str, str] = {}
    if isinstance(tensors, Mapping):
        plain = [_arrays.for_file(one, str(name), class_, texts) for name, one in tensors.items()]
        text = _core.plan(plain, None, asked, texts)
    else:
        text = _core.plan([], os.fspath(tensors), asked, texts)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def _encode(
    names: Iterable[str], arrays: Sequence[Any], class_: str | None, asked: dict[str, Any], progress: Progress
) -> list[Encoded]:
    texts: dict[str, str] = {}
    names = list(names)
    plain = [_arrays.for_file(x, name, class_, texts) for name, x in zip(names, arrays)]
    if texts and len(names) != len(set(names)):
        # What a format really is goes by name: arrays of one name are taken one at a time.
        pairs = zip(names, arrays)
        return [one for name, x in pairs for one in _encode([name], [x], class_, asked, progress)]
    with Bar(progress) as bar:
        coded = _core.encode(plain, asked, texts, bar.report)
    return [Encoded._of(one, _arrays.kind_of(x)) for one, x in zip(coded, arrays)]


@overload
def decode(encoded: Encoded, *, into: Kind | None = None, progress: Progress = None) -> Any: ...


@overload
def decode(
    encoded: Mapping[str, Encoded], *, into: Kind | None = None, progress: Progress = None
) -> dict[str, Any]: ...


@overload
def decode(
    encoded: Sequence[Encoded], *, into: Kind | None = None, progress: Progress = None
) -> list[Any]: ...


@overload
def decode(encoded: bytes | os.PathLike[str], *, into: Kind | None = None, progress: Progress = None) -> Any: ...


def decode(encoded: Any, *, into: Kind | None = None, progress: Progress = None) -> Any:
    """The array of an `Encoded`; of a list or a dictionary of them, all of them.

    Of the bytes of a container with one tensor as well; of a path (a string or a
    ``Path``), the arrays of that ``.tri`` file by name. An array of the library
    that was encoded, or of the one ``into`` names.

    >>> import numpy as np, trinity
    >>> x = np.arange(1000, dtype=np.int16)
    >>> bool((trinity.decode(trinity.encode(x, lossless=True)) == x).all())
    True
    """
    if isinstance(encoded, (str, os.PathLike)):
        return read(encoded, into=into or "numpy", progress=progress)
    if isinstance(encoded, (bytes, bytearray, memoryview)):
        encoded = Encoded(builtins.bytes(encoded))
    if isinstance(encoded, Encoded):
        return _decode([encoded], into, progress)[0]
    if isinstance(encoded, Mapping):
        return dict(zip(encoded, _decode(list(encoded.values()), into, progress)))
    return _decode(list(encoded), into, progress)


def _decode(encoded: list[Encoded], into: Kind | None, progress: Progress) -> list[Any]:
    with Bar(progress) as bar:
        decoded = _core.decode([one.bytes for one in encoded], bar.report)
    return [_finished(*one, into or own.kind) for one, own in zip(decoded, encoded)]


def _finished(
    memory: Any, dtype: str, shape: list[int], carried: tuple[str, list[int]] | None, kind: Kind
) -> Any:
    if carried is None:
        return _arrays.array(memory, dtype, shape, kind)
    known = {ours: theirs for theirs, ours in _arrays.CARRIED.items()}
    name, own_shape = carried
    if name not in known and not name.startswith("npy:"):
        raise InputError(f"a tensor of {name} is carried as bytes, and NumPy has no such format")
    import numpy as np

    found = np.frombuffer(memory, dtype=known.get(name) or name.removeprefix("npy:")).reshape(own_shape)
    if kind == "torch":
        import torch

        return torch.from_numpy(found)
    return found


def _may_write(path: StrPath, force: bool) -> Path:
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target} cannot be written: there is no folder {target.parent}")
    if target.exists() and not force:
        raise InputError.advised(f"{target} exists already", "choose another name, or replace it with force=True")
    return target


def save(
    path: StrPath,
    tensors: Encoded | Mapping[str, Any] | Iterable[Encoded],
    *,
    bits: float | None = None,
    nmse: float | None = None,
    qp: float | None = None,
    lossless: bool = False,
    codec: str | None = None,
    allocate: str | None = None,
    all: bool = False,
    class_: str | None = None,
    exclude: str | Iterable[str] = (),
    bits_for: Mapping[str, float] | None = None,
    codec_for: Mapping[str, str] | None = None,
    calibrate: StrPath | None = None,
    strict: bool = False,
    metadata: Mapping[str, str] | None = None,
    force: bool = False,
    progress: Progress = None,
) -> dict[str, Any] | None:
    """Writes a ``.tri`` file that ``trinity decode`` reads.

    Of what is coded already (an `Encoded`, several, or a dictionary of them) as
    it is; of a dictionary of arrays with a target, as ``trinity encode`` would (see
    `trinity.plan`): norms, biases and vectors stay exact unless ``all``, the rate
    holds for the whole file, and ``allocate="equal-slope"`` shares it out for the
    least total relative error. ``calibrate`` is the file of a `trinity.calibrate`.
    Returns the summary that the command prints with ``--json``; its errors are over
    what was coded.

    >>> import numpy as np, tempfile, trinity
    >>> path = tempfile.mkdtemp() + "/model.tri"
    >>> weights = {"a.weight": np.ones((64, 64), np.float32), "a.bias": np.ones(64, np.float32)}
    >>> trinity.save(path, weights, bits=3)["tensors"][1]["exact"]
    'fewer than 256 values'
    >>> sorted(trinity.load(path))
    ['a.bias', 'a.weight']
    """
    target = _may_write(path, force)
    texts = dict(metadata or {})
    if isinstance(tensors, Encoded):
        tensors = [tensors]
    named = dict(tensors) if isinstance(tensors, Mapping) else _by_name(tensors)
    if named and builtins.all(isinstance(one, Encoded) for one in named.values()):
        _core.write(str(target), [(name, one.bytes) for name, one in named.items()], texts)
        return None
    wanted, rules = _target(bits, nmse, qp, lossless), (exclude, bits_for, codec_for)
    asked = _asked(codec, wanted, allocate=allocate, all=all, strict=strict, rules=rules, calibrate=calibrate)
    plain = [
        _arrays.for_file(decode(x) if isinstance(x, Encoded) else x, str(name), class_, texts)
        for name, x in named.items()
    ]
    with Bar(progress) as bar:
        text = _core.encode_file(str(target), plain, None, asked, texts, bar.report)
    return _summary(text)


def _summary(text: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(text)
    return summary


def _by_name(tensors: Iterable[Encoded]) -> dict[str, Encoded]:
    named: dict[str, Encoded] = {}
    for one in tensors:
        if one.name in named:
            raise InputError(f"two tensors are named `{one.name}`")
        named[one.name] = one
    return named


def encode_file(
    source: StrPath,
    path: StrPath,
    *,
    bits: float | None = None,
    nmse: float | None = None,
    qp: float | None = None,
    lossless: bool = False,
    codec: str | None = None,
    allocate: str | None = None,
    all: bool = False,
    exclude: str | Iterable[str] = (),
    bits_for: Mapping[str, float] | None = None,
    codec_for: Mapping[str, str] | None = None,
    calibrate: StrPath | None = None,
    strict: bool = False,
    force: bool = False,
    progress: Progress = None,
) -> dict[str, Any]:
    """``trinity encode SOURCE -o PATH``: a tensor file of any format to a ``.tri`` file.

    Works slab by slab, so files larger than memory are fine. ``calibrate`` is a
    text, where the file is a language model that ``trinity eval`` runs, or the file
    of a `trinity.calibrate`. Returns the summary that the command prints with
    ``--json``.
    """
    target = _may_write(path, force)
    wanted, rules = _target(bits, nmse, qp, lossless), (exclude, bits_for, codec_for)
    asked = _asked(codec, wanted, allocate=allocate, all=all, strict=strict, rules=rules, calibrate=calibrate)
    with Bar(progress) as bar:
        text = _core.encode_file(str(target), [], os.fspath(source), asked, {}, bar.report)
    return _summary(text)


def load(path: StrPath, *, into: Kind = "numpy", progress: Progress = None) -> dict[str, Encoded]:
    """The tensors of a ``.tri`` file by name, still coded; `decode` makes arrays of them."""
    with Bar(progress) as bar:
        coded, _ = _core.load(os.fspath(path), bar.report)
    return {one[1]: Encoded._of(one, into) for one in coded}


def read(
    path: StrPath, *, tensor: str | None = None, into: Kind = "numpy", progress: Progress = None
) -> dict[str, Any]:
    """The arrays of a tensor file by name: safetensors (or its index, or a model's
    folder), npy, npz, PyTorch ``.pt``, GGUF or ``.tri``. ``tensor`` keeps those
    whose name contains it.
    """
    with Bar(progress) as bar:
        tensors = _core.read(os.fspath(path), tensor, bar.report)
    return {name: _finished(*decoded, into) for name, _, decoded in tensors}
