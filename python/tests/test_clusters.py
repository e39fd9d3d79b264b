"""Ray and Dask, for real: a local cluster, a worker that dies, and the same answer.

Both are large: `cargo xtask test --all` installs them, and without them these
tests say that they are left out.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import trinity
from processes import without_speeds
from trinity import executors


def _once_deadly(folder, function, *arguments):
    """Does the work; whoever comes first dies before."""
    try:
        os.close(os.open(Path(folder) / "died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        with open(Path(folder) / "done", "a") as done:
            done.write(f"{os.getpid()}\n")
        return function(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """An executor whose first part kills its worker."""

    def __init__(self, executor, folder):
        self._executor, self._folder = executor, str(folder)
        self._max_workers = executor._max_workers

    def submit(self, function, /, *arguments):
        return self._executor.submit(_once_deadly, self._folder, function, *arguments)


def _same_as_alone(executor, weights, folder):
    arrays = {"a": weights, "b": weights.T.copy(), "c": weights * 2}
    deadly = Deadly(executor, folder)
    shared = trinity.compare(arrays, ["rtn", "uniform+ac"], [3, 4], executor=deadly)
    assert (folder / "died").exists(), "no worker was killed"
    assert without_speeds(shared) == without_speeds(trinity.compare(arrays, ["rtn", "uniform+ac"], [3, 4]))
    assert trinity.encode(arrays, bits=3, executor=executor) == trinity.encode(arrays, bits=3)
    assert trinity.sweep(executor=executor) == trinity.sweep()


def test_a_ray_cluster_that_loses_a_worker_gives_the_same_answer(weights, tmp_path):
    ray = pytest.importorskip("ray", reason="LEFT OUT: Ray is not installed (cargo xtask test --all)")
    paths = os.pathsep.join([str(Path(trinity.__file__).parents[1]), str(Path(__file__).parent)])
    environment = {"env_vars": {"PYTHONPATH": paths}}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        _same_as_alone(executors.ray_executor(), weights, tmp_path)
    finally:
        ray.shutdown()


def test_a_dask_cluster_that_loses_a_worker_gives_the_same_answer(weights, tmp_path):
    distributed = pytest.importorskip("distributed", reason="LEFT OUT: Dask is not installed (cargo xtask test --all)")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            _same_as_alone(executors.dask_executor(client), weights, tmp_path)
