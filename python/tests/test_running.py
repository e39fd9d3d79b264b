"""How a call behaves while it runs: overhead, threads, Ctrl-C, progress, types, examples."""

from __future__ import annotations

import doctest
import importlib
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import trinity
from processes import python, without_speeds

PACKAGE = Path(trinity.__file__).parent


def test_the_lock_is_released_while_a_codec_works(weights):
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    clock = threading.Thread(target=tick)
    clock.start()
    large = np.tile(weights, (8, 4))
    start = time.perf_counter()
    trinity.encode(large, bits=3)
    took = time.perf_counter() - start
    done.set()
    clock.join()
    within = [at for at in ticks if start < at < start + took]
    assert len(within) >= min(5, took / 0.05), f"{len(within)} ticks in {took:.3f} s"


def test_the_overhead_of_a_small_call_is_small():
    x = np.linspace(-1, 1, 256, dtype=np.float32)
    overheads = []
    for _ in range(300):
        start = time.perf_counter()
        e = trinity.encode(x, lossless=True)
        overheads.append(time.perf_counter() - start - e.codec_s)
    # The least: what else runs on the machine adds to a call and takes nothing off. The build of the tests leaves front
    # ends unoptimized, and a call takes ten times as long there as in a wheel.
    assert min(overheads) < 500e-6, f"{min(overheads) * 1e6:.1f} µs"


def test_ctrl_c_stops_a_long_call(tmp_path):
    script = tmp_path / "long.py"
    script.write_text(
        # A shell in the background has its children ignore the signal.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import numpy as np, trinity\n"
        "x = np.random.default_rng(1).normal(size=(4096, 4096)).astype(np.float32)\n"
        "print('begun', flush=True)\n"
        "try:\n"
        "    trinity.compare({'x': x}, ['trinity-max', 'h265-best'], [2, 3, 4])\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    time.sleep(1.0)
    start = time.perf_counter()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    # The whole takes minutes; a machine with other work to do may take seconds to stop.
    assert time.perf_counter() - start < 10.0
    child.wait(timeout=20)


def test_progress_is_reported_to_whoever_asks(weights):
    seen = []
    trinity.encode(np.tile(weights, (8, 8)), bits=3, progress=lambda *said: seen.append(said))
    assert seen and seen[-1][0] == "encoding" and seen[-1][1] <= seen[-1][2] == weights.size * 64
    broken = np.full((32, 32), np.nan, np.float32)
    remarks = []
    trinity.compare({"x": weights[:32], "y": broken}, "rtn", 4, progress=lambda *said: remarks.append(said))
    assert any("left out" in what and done is None for what, done, _ in remarks)


def test_the_bar_is_tqdms(weights, capfd):
    pytest.importorskip("tqdm")
    trinity.compare({"x": weights}, "rtn", 4, progress=True)
    assert "comparing" in capfd.readouterr().err
    trinity.compare({"x": weights}, "rtn", 4)
    assert capfd.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(weights, capfd, monkeypatch):
    large = {"x": np.tile(weights, (8, 8)), "y": np.tile(weights, (4, 4))}
    monkeypatch.setattr("trinity._progress.LINE_EVERY_S", 0.0)
    trinity.encode(large, bits=3)
    assert re.search(r"^encoding: \d+ %, \d+ s$", capfd.readouterr().err, re.MULTILINE)
    trinity.encode(large, bits=3, progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_gives_what_one_machine_gives(weights, pool, tmp_path):
    np.save(tmp_path / "x.npy", weights)
    arrays = {"a": weights, "b": weights.T.copy()}
    keywords = {"mp_context": __import__("multiprocessing").get_context("spawn")} if pool is ProcessPoolExecutor else {}
    with pool(2, **keywords) as executor:
        assert trinity.encode(arrays, bits=3, executor=executor) == trinity.encode(arrays, bits=3)
        shared = trinity.compare(arrays, ["rtn", "uniform+ac"], [3, 4], precondition=["none", "pca"], executor=executor)
        alone = trinity.compare(arrays, ["rtn", "uniform+ac"], [3, 4], precondition=["none", "pca"])
        assert without_speeds(shared) == without_speeds(alone) and len(shared.classes) == len(alone.classes)
        of_file = trinity.compare(tmp_path / "x.npy", "rtn", 4, executor=executor)
        assert [row["tensor"] for row in of_file] == ["x"] * 3
        assert trinity.sweep(executor=executor) == trinity.sweep()


def test_every_example_of_the_documentation_runs():
    modules = ["trinity", "trinity._coded", "trinity._studies", "trinity.executors"]
    for name in modules:
        module = importlib.import_module(name)
        outcome = doctest.testmod(module, optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS)
        assert outcome.failed == 0 and outcome.attempted > 0, name


def test_mypy_accepts_the_package_and_a_user_of_it(tmp_path):
    pytest.importorskip("mypy")
    user = tmp_path / "user.py"
    user.write_text(
        "import numpy as np, trinity\n"
        "e: trinity.Encoded = trinity.encode(np.zeros((4, 4)), bits=3)\n"
        "rate: float = e.rate\n"
        "many: list[trinity.Encoded] = trinity.encode([np.zeros(4)], lossless=True)\n"
        "named: dict[str, trinity.Encoded] = trinity.encode({'a': np.zeros(4)}, nmse=0.1)\n"
        "rows: list[dict[str, object]] = trinity.compare('x.npy', 'rtn', 3)\n"
        "wrong: int = trinity.encode(np.zeros(4), bits=3)\n"
    )
    # The package imports PyTorch only where it is.
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-torch.*]\nignore_missing_imports = True\n")
    options = ["--strict", "--no-error-summary", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache")]
    check = lambda *paths: python("-m", "mypy", *options, *paths, env={"MYPYPATH": str(PACKAGE.parent)})
    found = check(str(user)).stdout.splitlines()
    assert len(found) == 1 and ":7: error: Incompatible types" in found[0], found
    # `trinity.torch` is checked where PyTorch is, in test_torch.py.
    assert check(*map(str, sorted(PACKAGE.glob("*.py")))).stdout == ""
