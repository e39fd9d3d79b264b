"""Studies: comparisons, sweeps, estimates and validations, with the command's digits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _arrays, _core, executors
from ._coded import Progress, StrPath
from ._errors import InputError
from ._progress import Bar

Row = dict[str, Any]


class Rows(list[Row]):
    """Rows of a comparison: a list of dictionaries, so ``pandas.DataFrame(rows)`` and
    ``polars.DataFrame(rows)`` take it as it is.

    ``classes`` has the means over the tensors of a class, ``misses`` the targets
    that a codec did not reach.
    """

    def __init__(self, rows: Iterable[Row], classes: list[Row], misses: list[Row]) -> None:
        super().__init__(rows)
        self.classes = classes
        self.misses = misses


def _texts(value: str | Iterable[str] | None, usual: list[str]) -> list[str]:
    if value is None:
        return usual
    return [value] if isinstance(value, str) else list(value)


def _numbers(value: float | Iterable[float] | None) -> list[float]:
    if value is None:
        return []
    return [float(value)] if isinstance(value, (int, float)) else [float(one) for one in value]


def _sources(tensors: Any, class_: str | None) -> tuple[list[str], list[_arrays.Plain]]:
    """Files and arrays of what was given: paths, a dictionary, an array, or a list."""
    if isinstance(tensors, (str, os.PathLike)):
        return [os.fspath(tensors)], []
    if isinstance(tensors, Mapping):
        return [], [_arrays.plain(x, str(name), class_) for name, x in tensors.items()]
    if isinstance(tensors, (list, tuple)):
        files = [os.fspath(one) for one in tensors if isinstance(one, (str, os.PathLike))]
        arrays = [one for one in tensors if not isinstance(one, (str, os.PathLike))]
        return files, [_arrays.plain(x, f"tensor.{at}", class_) for at, x in enumerate(arrays)]
    return [], [_arrays.plain(tensors, "tensor", class_)]


def compare(
    tensors: Any,
    codecs: str | Iterable[str] | None = None,
    bits: float | Iterable[float] | None = None,
    *,
    nmse: float | Iterable[float] | None = None,
    precondition: str | Iterable[str] = "none",
    class_: str | None = None,
    tensor: str | None = None,
    strict: bool = False,
    earlier: Iterable[Row] = (),
    progress: Progress = None,
    executor: Any = None,
) -> Rows:
    """Codecs side by side: bits, errors, speeds and the gap to the bound.

    ``tensors`` are paths of tensor files, a dictionary of arrays, a list of
    either, or one array. Codecs and rates are those of ``trinity compare`` where
    none is named. Rows of an ``earlier`` comparison are taken over where they
    follow from the same. ``executor`` shares the cells out; see
    `trinity.executors`.

    >>> import numpy as np, trinity
    >>> x = np.sin(np.arange(128 * 64, dtype=np.float32)).reshape(128, 64)
    >>> rows = trinity.compare({"x": x}, ["uniform+ac", "rtn"], bits=4, progress=False)
    >>> [(row["codec"], row["target"]) for row in rows][:2]
    [('uniform+ac', '4'), ('rtn', '4')]
    """
    files, plain = _sources(tensors, class_)
    rates = _numbers(bits)
    errors = _numbers(nmse)
    request = {
        "files": files,
        "codecs": _texts(codecs, list(_core.USUAL_CODECS)),
        "bits": rates if rates or errors else list(_core.USUAL_BITS),
        "nmse": errors,
        "precondition": _texts(precondition, ["none"]),
        "class": class_,
        "tensor": tensor,
        "strict": strict,
        "shard": [0, 1],
        "earlier": list(earlier),
        "only_earlier": False,
    }
    if executor is not None:
        request, progress = executors.compare(executor, request, plain), False
    answer = _answer("compare", request, progress, plain)
    return Rows(answer["all"], answer["classes"], answer["misses"])


def _answer(kind: str, request: dict[str, Any], progress: Progress = False, plain: Sequence[_arrays.Plain] = ()) -> Any:
    with Bar(progress) as bar:
        return json.loads(_core.study(kind, json.dumps(request), plain, bar.report))


def tensors_info(tensors: Any, *, class_: str | None = None, progress: Progress = None) -> list[Row]:
    """What a codec could exploit in each tensor: the rows of ``trinity tensors info --json``.

    >>> import numpy as np, trinity
    >>> row, = trinity.tensors_info({"x": np.eye(64, dtype=np.float32)}, progress=False)
    >>> row["shape"], row["max"]
    ([64, 64], 1.0)
    """
    files, plain = _sources(tensors, class_)
    rows: list[Row] = _answer("tensors", {"files": files, "class": class_}, progress, plain)
    return rows


def explore(
    tensors: Any = None,
    *,
    study: str = "sweeps/llama-3-70b",
    bits: float | None = None,
    nmse: float | None = None,
    loss: float | None = None,
    budget_mm2: float | None = None,
    codecs: str | Iterable[str] = (),
    node: str | None = None,
    draws: int | None = None,
    cells: int | None = None,
    set: Mapping[str, Any] | Iterable[str] | None = None,
    class_: str | None = None,
    tensor: str | None = None,
    progress: Progress = None,
) -> Row:
    """From tensors to a cluster: which codec at one quality makes the fastest cluster of an area.

    What ``trinity explore --json`` prints. ``tensors`` as in `compare`, small ones that come with the
    module where none are given; the quality is an ``nmse`` (0.01), ``bits``, or the ``loss`` in bits per byte
    of the built-in language model with any one class coded; what training sends has the bits of recorded runs
    unless ``nmse`` or ``bits`` is given. Odds are taken from ``draws`` (1021) of everything uncertain together, the
    map of where a codec pays is ``cells`` (15) wide.
    """
    given = [name for name, amount in (("bits", bits), ("nmse", nmse), ("loss", loss)) if amount is not None]
    if len(given) > 1:
        raise InputError(f"expected one of bits=, nmse= and loss=, found {' and '.join(given)}")
    files, plain = _sources([] if tensors is None else tensors, class_)
    request = {
        "files": files,
        "class": class_,
        "tensor": tensor,
        "bits": bits,
        "nmse": nmse,
        "loss": loss,
        "study": study,
        "sets": _assignments(set, {}),
        "budget_mm2": budget_mm2,
        "codecs": _texts(codecs, []),
        "node": node,
        "draws": draws,
        "cells": cells,
    }
    answer: Row = _answer("explore", request, progress, plain)
    return answer


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def _assignments(set: Mapping[str, Any] | Iterable[str] | None, keywords: Mapping[str, Any]) -> list[str]:
    """``path=value``, as ``--set`` has them; in keywords ``__`` stands for a dot, ``_`` for a dash."""
    given = [f"{path}={_value(value)}" for path, value in set.items()] if isinstance(set, Mapping) else list(set or ())
    named = [
        f"{keyword.replace('__', '.').replace('_', '-')}={_value(value)}" for keyword, value in keywords.items()
    ]
    return given + named


def _sweep_request(
    sweep: str, set: Mapping[str, Any] | Iterable[str] | None, top: int, calibration: StrPath | None
) -> dict[str, Any]:
    is_text = "\n" in sweep
    return {
        "sweep": "sweep" if is_text else sweep,
        "text": sweep if is_text else None,
        "sets": _assignments(set, {}),
        "top": top,
        "calibration": None if calibration is None else os.fspath(calibration),
    }


def sweep(
    sweep: str = "sweeps/llama-7b",
    *,
    set: Mapping[str, Any] | Iterable[str] | None = None,
    calibration: StrPath | None = None,
    top: int = 10,
    progress: Progress = None,
    executor: Any = None,
) -> Row:
    """Sweeps GPUs, NICs and codecs over an area budget: what ``trinity sweep --json`` prints.

    ``sweep`` is a built-in one (`trinity.configs("sweeps")`), a path that ends in
    ``.toml``, or TOML itself. ``set`` lays values over it: ``{"study.cluster.nic.area":
    "100 mm2"}``. ``executor`` shares the points out; the answer is the same.

    >>> import trinity
    >>> answer = trinity.sweep(top=3, progress=False)
    >>> answer["headline"]["candidate"], len(answer["top"])
    ('three-in-one', 3)
    """
    request = _sweep_request(sweep, set, top, calibration)
    if executor is not None:
        return executors.sweep(executor, request)
    answer: Row = _answer("sweep", request, progress)
    return answer


def explain(
    index: int,
    sweep: str = "sweeps/llama-7b",
    *,
    set: Mapping[str, Any] | Iterable[str] | None = None,
    calibration: StrPath | None = None,
) -> Row:
    """One point of a sweep, with the formula behind each line."""
    answer: Row = _answer("explain", {**_sweep_request(sweep, set, 0, calibration), "index": index})
    return answer


def _described(name: str, part: str) -> dict[str, Any]:
    if "\n" in part:
        return {"text": {"name": name, "text": part}}
    if part.startswith("sweeps/"):
        return {"of-sweep": part}
    return {"named": part}


def estimate(
    cluster: str = "sweeps/llama-7b",
    job: str = "sweeps/llama-7b",
    *,
    set: Mapping[str, Any] | Iterable[str] | None = None,
    **overrides: Any,
) -> Row:
    """What a job costs on a cluster: ``estimate``, and ``lines`` with the formula behind each.

    Either is a built-in configuration or a path that ends in ``.toml``, TOML
    itself, or a sweep, whose cluster or job is taken. Overrides are keywords
    (``__`` for a dot, ``_`` for a dash) or, in ``set``, paths.

    >>> import trinity
    >>> eight = {"job.parallelism.pipeline": 8}
    >>> usual = trinity.estimate(set=eight)["estimate"]["iteration_s"]
    >>> slow = trinity.estimate(set=eight, cluster__nic__bandwidth="10 Gbit/s")["estimate"]["iteration_s"]
    >>> slow > usual
    True
    """
    request = {
        "cluster": _described("cluster", cluster),
        "job": _described("job", job),
        "overrides": _assignments(set, overrides),
    }
    answer: Row = _answer("estimate", request)
    return answer


def evaluate(
    model: StrPath | None = None,
    text: StrPath | None = None,
    *,
    weights: str | None = None,
    kv: str | None = None,
    activations: str | None = None,
    sweep: float | Iterable[float] | None = None,
    codecs: str | Iterable[str] | None = None,
    allocation: str = "equal",
    windows: int | None = None,
    calibrate: StrPath | None = None,
    original: StrPath | None = None,
    stages: int = 4,
    block: int = 256,
    progress: Progress = None,
    executor: Any = None,
) -> list[Row]:
    """What a bit rate does to a language model: bits per byte uncoded, and with codecs in the loop.

    A coding is ``"CODEC@BITS"``, for ``weights``, the ``kv`` cache, or the
    ``activations`` between pipeline stages; ``sweep`` has rates to code the
    weights at with each of ``codecs``. The first row is the model as it is, the
    built-in tiny one where none is named. With ``original``, the model that a
    ``.tri`` file or a decoded folder was made from, the second row is that file.
    ``executor`` shares codecs of a sweep out.

    >>> import trinity
    >>> plain, coded = trinity.evaluate(weights="rtn@4", windows=1, progress=False)
    >>> coded["bits_per_byte"] > plain["bits_per_byte"]
    True
    """
    request = {
        "model": None if model is None else os.fspath(model),
        "original": None if original is None else os.fspath(original),
        "text": None if text is None else os.fspath(text),
        "windows": windows,
        "calibrate": None if calibrate is None else os.fspath(calibrate),
        "weights": weights,
        "kv": kv,
        "activations": activations,
        "allocation": allocation,
        "stages": stages,
        "block": block,
        "rates": _numbers(sweep),
        "codecs": _texts(codecs, list(_core.EVALUATED_CODECS)),
        "earlier": [],
        "only_earlier": False,
    }
    if executor is not None:
        return executors.evaluate(executor, request)
    rows: list[Row] = _answer("evaluate", request, progress)
    return rows


def _paths(paths: StrPath | Iterable[StrPath] | None) -> list[str]:
    if paths is None:
        return []
    if isinstance(paths, (str, os.PathLike)):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


def validate(
    *,
    runs: StrPath | Iterable[StrPath] | None = None,
    oom: StrPath | Iterable[StrPath] | None = None,
    collectives: StrPath | Iterable[StrPath] | None = None,
    host_runs: StrPath | Iterable[StrPath] | None = None,
    serving: StrPath | Iterable[StrPath] | None = None,
    kernels: StrPath | None = None,
    recording: StrPath | None = None,
    set: Mapping[str, Any] | Iterable[str] | None = None,
    progress: Progress = None,
) -> Row:
    """Holds every model against measurements: ``sets`` (the rows of ``trinity validate
    --json``), the ``breaches`` of its bars, and rows that were ``malformed``.
    """
    request = {
        "runs": _paths(runs),
        "oom": _paths(oom),
        "collectives": _paths(collectives),
        "host_runs": _paths(host_runs),
        "serving": _paths(serving),
        "kernels": None if kernels is None else os.fspath(kernels),
        "recording": None if recording is None else os.fspath(recording),
        "sets": _assignments(set, {}),
    }
    answer: Row = _answer("validate", request, progress)
    return answer


def codecs() -> list[str]:
    """Every codec by name; any of them also as ``hadamard/NAME``, and two as ``residual/A/B``."""
    return list(_core.codec_names())


def configs(kind: str = "") -> list[str]:
    """Built-in configurations whose name begins with ``kind``: gpus, nics, llms, clusters, sweeps, …

    >>> import trinity
    >>> "sweeps/llama-7b" in trinity.configs("sweeps")
    True
    """
    return [name for name in _core.config_names() if name.startswith(kind)]


def config(name: str) -> str | None:
    """The TOML of a built-in configuration."""
    text: str | None = _core.config_text(name)
    return text
