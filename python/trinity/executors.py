"""Work shared out over machines: ``executor=`` of `encode`, `compare`, `sweep` and `evaluate`.

An executor is whatever has ``submit(function, *arguments)`` of
``concurrent.futures`` and returns futures with ``result()``. `ray_executor` and
`dask_executor` make one of a Ray or Dask cluster. Parts are idempotent: a part
that is run twice, because a worker died, gives the same answer, and the whole is
the same as on one machine (but for speeds, which are measured).

>>> import numpy as np, trinity
>>> from concurrent.futures import ThreadPoolExecutor
>>> x = np.sin(np.arange(128 * 64, dtype=np.float32)).reshape(128, 64)
>>> with ThreadPoolExecutor(2) as pool:
...     shared = trinity.encode([x, x + 1, x * 2], bits=3, executor=pool)
>>> shared == trinity.encode([x, x + 1, x * 2], bits=3)
True
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from . import _arrays, _core


class Future(Protocol):
    """What `Executor.submit` returns."""

    def result(self) -> Any: ...


class Executor(Protocol):
    """The part of ``concurrent.futures.Executor`` that is needed here."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future: ...


#: Parts per worker: enough that a slow one does not keep the others waiting.
_PARTS_PER_WORKER = 4


def _parts(executor: Any, most: int) -> int:
    """How many parts to make of ``most`` pieces."""
    workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    return max(1, min(most, _PARTS_PER_WORKER * int(workers)))


def _gather(executor: Executor, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results in order; the first error is raised."""
    futures = [executor.submit(function, *one) for one in arguments]
    return [future.result() for future in futures]


def _carried(plain: _arrays.Plain) -> _arrays.Plain:
    """The same with bytes that pickle anywhere, also where torch is not installed."""
    name, class_, dtype, shape, data = plain
    return (name, class_, dtype, shape, np.asarray(data))


def _encode_part(plain: list[_arrays.Plain], asked: dict[str, Any], texts: dict[str, str]) -> list[Any]:
    return list(_core.encode(plain, asked, texts, None))


def encode(
    executor: Executor, names: Sequence[str], arrays: Sequence[Any], class_: str | None, asked: dict[str, Any]
) -> list[Any]:
    """`trinity.encode` of many arrays, one part each: what is coded, as the core gives it."""
    texts: dict[str, str] = {}
    plain = [_carried(_arrays.for_file(x, name, class_, texts)) for name, x in zip(names, arrays)]
    coded = _gather(executor, _encode_part, [([one], asked, texts) for one in plain])
    return [one[0] for one in coded]


def _encode_tensor(plain: _arrays.Plain, part: Any, texts: dict[str, str], strict: bool, measure: bool) -> Any:
    return _core.encode_part(plain, part, texts, strict, measure)


def encode_model(
    executor: Executor, plain: Sequence[_arrays.Plain], asked: dict[str, Any], texts: dict[str, str]
) -> list[Any]:
    """A model's tensors, one part each: the plan is made here, so that every part has its rate."""
    parts = _core.plan_model(plain, asked, texts)
    strict, measure = asked["strict"], asked["measure"]
    work = [(_carried(one), part) for one, part in zip(plain, parts) if part[4] is None]
    arguments = [(one, part, _texts_of(one[0], texts), strict, measure) for one, part in work]
    done = dict(zip((one[0] for one, _ in work), _gather(executor, _encode_tensor, arguments)))
    coded = []
    for (name, *_), part in zip(plain, parts):
        if part[4] is None:
            coded.append(done[name])
            continue
        # One that holds what another holds, under its own name.
        source = done[part[4]]
        (own,) = _core.describe([_core.write(None, [(name, source[0])], {})])
        coded.append((*own[:6], f"tied to `{part[4]}`", source[7], source[8]))
    return coded


def _texts_of(name: str, texts: dict[str, str]) -> dict[str, str]:
    key = f"carried.{name}"
    return {key: texts[key]} if key in texts else {}


def _compare_part(request: dict[str, Any], plain: list[_arrays.Plain]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(_core.compare(json.dumps(request), plain, None))["all"]
    return rows


def compare(executor: Executor, request: dict[str, Any], plain: Sequence[_arrays.Plain]) -> dict[str, Any]:
    """The request of `trinity.compare` with every cell, which were shared out; one that two parts fill is taken once, by its key."""
    carried = [_carried(one) for one in plain]
    cells = max(1, len(request["codecs"]) + 2) * max(1, len(plain) + len(request["files"]))
    count = _parts(executor, cells)
    parts = [({**request, "shard": [index, count]}, carried) for index in range(count)]
    rows = [row for part in _gather(executor, _compare_part, parts) for row in part]
    # A cell that is missing is an error; one that came twice is taken once.
    return {**request, "earlier": [*request["earlier"], *rows], "only_earlier": True}


def _sweep_part(request: dict[str, Any], index: int, count: int) -> str:
    return _core.sweep_part(json.dumps(request), index, count, None)


def sweep(executor: Executor, request: dict[str, Any]) -> dict[str, Any]:
    """`trinity.sweep`, its points shared out."""
    count = _parts(executor, 1 << 16)
    parts = _gather(executor, _sweep_part, [(request, index, count) for index in range(count)])
    answer: dict[str, Any] = json.loads(_core.sweep(json.dumps(request), parts, None))
    return answer


def _evaluate_part(request: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(_core.evaluate(json.dumps(request), None))
    return rows


def evaluate(executor: Executor, request: dict[str, Any]) -> list[dict[str, Any]]:
    """`trinity.evaluate`, the codecs of its sweep shared out."""
    if not request["rates"]:
        return _gather(executor, _evaluate_part, [(request,)])[0]  # type: ignore[no-any-return]
    parts = [({**request, "codecs": [codec]},) for codec in request["codecs"]]
    rows = [row for part in _gather(executor, _evaluate_part, parts) for row in part]
    return _evaluate_part({**request, "earlier": rows, "only_earlier": True})


class _RayFuture:
    def __init__(self, reference: Any) -> None:
        self._reference = reference

    def result(self) -> Any:
        ray: Any = importlib.import_module("ray")
        return ray.get(self._reference)


class ray_executor:
    """An executor of a Ray cluster; a part whose worker dies is run again, up to ``retries`` times.

    >>> import ray                                        # doctest: +SKIP
    >>> ray.init()                                        # doctest: +SKIP
    >>> trinity.compare(paths, executor=trinity.executors.ray_executor())  # doctest: +SKIP
    """

    def __init__(self, retries: int = 5, **options: Any) -> None:
        ray: Any = importlib.import_module("ray")
        self._run = ray.remote(max_retries=retries, **options)(_call)
        self._max_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> _RayFuture:
        return _RayFuture(self._run.remote(fn, *args))


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


class dask_executor:
    """An executor of a Dask cluster: of a ``distributed.Client``."""

    def __init__(self, client: Any, retries: int = 5) -> None:
        self._client = client
        self._retries = retries
        self._max_workers = max(1, sum(client.nthreads().values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        # `pure`: the same part is the same result, which Dask may keep.
        return self._client.submit(fn, *args, pure=True, retries=self._retries)
