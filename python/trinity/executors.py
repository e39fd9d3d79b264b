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


def encode(
    executor: Executor, names: Sequence[str], arrays: Sequence[Any], class_: str | None, asked: dict[str, Any]
) -> list[Any]:
    """`trinity.encode` of many arrays, one part each: what is coded, as the core gives it."""
    texts: dict[str, str] = {}
    plain = [_carried(_arrays.for_file(x, name, class_, texts)) for name, x in zip(names, arrays)]
    coded = _gather(executor, _core.encode, [([one], asked, texts, None) for one in plain])
    return [one[0] for one in coded]


def encode_model(
    executor: Executor, plain: Sequence[_arrays.Plain], asked: dict[str, Any], texts: dict[str, str]
) -> list[Any]:
    """A model's tensors, one part each: the plan is made here, so that every part has its rate."""
    parts = _core.plan_model(plain, asked, texts)
    strict, measure = asked["strict"], asked["measure"]
    work = [(_carried(one), part) for one, part in zip(plain, parts) if part[4] is None]
    # Of the texts of carried tensors each part has its own.
    own_texts = [{key: text for key, text in texts.items() if key == f"carried.{one[0]}"} for one, _ in work]
    arguments = [(one, part, own, strict, measure) for (one, part), own in zip(work, own_texts)]
    done = dict(zip((one[0] for one, _ in work), _gather(executor, _core.encode_part, arguments)))
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


def _study(executor: Executor, kind: str, requests: Sequence[dict[str, Any]], plain: Sequence[_arrays.Plain] = ()) -> list[str]:
    """What a study answers to each request, as JSON."""
    return _gather(executor, _core.study, [(kind, json.dumps(one), plain, None) for one in requests])


def compare(executor: Executor, request: dict[str, Any], plain: Sequence[_arrays.Plain]) -> dict[str, Any]:
    """The request of `trinity.compare` with every cell, which were shared out; one that two parts fill is taken once, by its key."""
    carried = [_carried(one) for one in plain]
    cells = max(1, len(request["codecs"]) + 2) * max(1, len(plain) + len(request["files"]))
    count = _parts(executor, cells)
    parts = [{**request, "shard": [index, count]} for index in range(count)]
    rows = [row for part in _study(executor, "compare", parts, carried) for row in json.loads(part)["all"]]
    # A cell that is missing is an error; one that came twice is taken once.
    return {**request, "earlier": [*request["earlier"], *rows], "only_earlier": True}


def sweep(executor: Executor, request: dict[str, Any]) -> dict[str, Any]:
    """`trinity.sweep`, its points shared out."""
    count = _parts(executor, 1 << 16)
    parts = _study(executor, "sweep", [{**request, "shard": [index, count]} for index in range(count)])
    answer: dict[str, Any] = json.loads(_core.study("sweep", json.dumps({**request, "parts": parts}), [], None))
    return answer


def evaluate(executor: Executor, request: dict[str, Any]) -> list[dict[str, Any]]:
    """`trinity.evaluate`, the codecs of its sweep shared out."""
    if request["rates"]:
        parts = _study(executor, "evaluate", [{**request, "codecs": [codec]} for codec in request["codecs"]])
        request = {**request, "earlier": [row for part in parts for row in json.loads(part)], "only_earlier": True}
        text = _core.study("evaluate", json.dumps(request), [], None)
    else:
        (text,) = _study(executor, "evaluate", [request])
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


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
