"""Many runs of one file, several at a time: a table of what differs, one recording of all.

A file names a run as its base and lists what each run changes. Workers take runs
in order; summaries and rows are written as they come, so that a stop loses
nothing but the runs in flight.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import multiprocessing
import os
import queue
import time
from pathlib import Path
from typing import Any

from trinity import Error, InputError
from . import _config
from ._config import Run

#: Of the rows of a run, the recording keeps every one of so many.
THINNED = 10


def _set(run: Run, path: str, value: Any, where: str) -> None:
    target: Any = run
    *tables, key = path.split(".")
    for table in tables:
        target = getattr(target, table, None)
    known = list(vars(target)) if hasattr(target, "__dataclass_fields__") else []
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        raise InputError(f"{where}: unknown key `{path}`" + (f"\nhelp: did you mean `{near[0]}`?" if near else ""))
    setattr(target, key, float(value) if type(getattr(target, key)) is float else value)


def load(path: str | Path) -> list[tuple[str, Run]]:
    """The runs of a file, by name; each was checked."""
    said = _config.toml(_config.read(path), path)
    unknown = said.keys() - {"base", "runs"}
    if unknown or "base" not in said:
        raise InputError(f"{path}: expected `base` and `[[runs]]`, found {', '.join(said)}")
    found = []
    for entry in said.get("runs", []):
        where = f"{path}, run `{entry.get('name', '?')}`"
        if entry.keys() - {"name", "set", "seeds"} or "name" not in entry:
            raise InputError(f"{where}: expected name, set and seeds, found {', '.join(entry)}")
        for seed in entry.get("seeds", [1]):
            run = _config.load(Path(path).parent / said["base"])
            for key, value in entry.get("set", {}).items():
                _set(run, key, value, where)
            run.seed = seed
            _config.check(run, where)
            found.append((f"{entry['name']}@{seed}", run))
    # First all runs with their first seed, then with their second: whoever stops early has one of each.
    rounds: dict[str, int] = {}
    order = []
    for job in found:
        name = job[0].rpartition("@")[0]
        rounds[name] = rounds.get(name, -1) + 1
        order.append(rounds[name])
    return [job for _, job in sorted(zip(order, found), key=lambda item: item[0])]


def _work(out: str, jobs: Any, results: Any) -> None:
    from ._loop import COLUMNS, train

    while True:
        try:
            name, run = jobs.get_nowait()
        except queue.Empty:
            return
        rows: list[dict[str, Any]] = []
        run.out = str(Path(out) / "runs" / name)
        try:
            summary = train(run, force=True, say=rows.append)
        except Error as error:
            summary = {"failed": error.message, "run": run.as_dict(), "steps_done": len(rows)}
        kept = [row for row in rows if row["step"] % THINNED == 0 or row["step"] == 1]
        results.put((name, summary, [[row[column] for column in COLUMNS] for row in kept]))


def run_all(path: str | Path, out: str | Path, workers: int, seconds: float, part: str | None = None) -> int:
    """Runs what a file lists, ``workers`` at a time, for at most so many seconds; returns how many ended."""
    listed = [(name, run) for name, run in load(path) if part is None or name.startswith(part)]
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    jobs, results = spawn.Queue(), spawn.Queue()
    for job in listed:
        jobs.put(job)
    began, ended = time.monotonic(), 0
    time.sleep(0.2)
    processes = [spawn.Process(target=_work, args=(str(out), jobs, results)) for _ in range(min(workers, len(listed)))]
    for process in processes:
        process.start()
    rows_path = folder / "rows.csv"
    fresh = not rows_path.exists()
    with rows_path.open("a", newline="") as rows_file, (folder / "summaries.jsonl").open("a") as summaries:
        while ended < len(listed) and time.monotonic() - began < seconds:
            try:
                name, summary, rows = results.get(timeout=0.5)
            except queue.Empty:
                if not any(process.is_alive() for process in processes) and results.empty():
                    break
                continue
            from ._loop import COLUMNS

            if fresh:
                csv.writer(rows_file).writerow(("run", *COLUMNS))
                fresh = False
            for row in rows:
                shown = ["" if isinstance(v, float) and v != v else f"{v:.5g}" for v in row]
                csv.writer(rows_file).writerow([name, *shown])
            summaries.write(json.dumps({"name": name, **summary}) + "\n")
            rows_file.flush()
            summaries.flush()
            ended += 1
            valid = summary.get("valid_bits_per_byte")
            said = summary.get("failed") or f"{valid:.4f} bits/byte, {summary['bits_per_value']:.3f} bits/value"
            print(f"{time.monotonic() - began:6.1f} s  {name}: {said}", flush=True)
    for process in processes:
        if process.is_alive():
            process.terminate()
    jobs.cancel_join_thread()
    return ended


#: Columns of the table of runs that `table` makes.
SUMMARY = (
    "valid_bits_per_byte", "windows_interval", "train_bits_per_byte", "bits_per_value", "activation_bits",
    "gradient_bits", "encode_values_per_s", "decode_values_per_s", "codec_s", "step_s", "seconds",
)  # fmt: skip


def table(summaries: list[dict[str, Any]]) -> list[list[Any]]:
    """Summaries as rows of a table, a header first; runs that failed are left out."""
    done = [one for one in summaries if "valid_bits_per_byte" in one]
    kinds = sorted({kind for one in done for kind in one["kinds"]})
    header = ["run", "seed", "steps", "parameters", "lr", "clip", "method", *SUMMARY, "choices"]
    rows: list[list[Any]] = [header + [f"{what}_{kind}" for what in ("bits", "choices") for kind in kinds]]
    for one in sorted(done, key=lambda one: one["name"]):
        run, right = one["run"], one["choices"]
        said = [one["name"].rpartition("@")[0], one["seed"], one["steps"], one["parameters"]]
        said += [run["optimizer"]["lr"], run["optimizer"]["clip"], run["data_parallel"]["method"]]
        said += [f"{one[key]:.5g}" for key in SUMMARY] + [f"{sum(right.values()) / len(right):.4f}"]
        said += [f"{one['kinds'][kind]:.5g}" for kind in kinds] + [f"{right[kind]:.4f}" for kind in kinds]
        rows.append(said)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """``python python/research/train many RUNS.toml --out DIR``."""
    parser = argparse.ArgumentParser(prog="python python/research/train many", description=__doc__)
    parser.add_argument("runs")
    parser.add_argument("--out", required=True)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--part", help="only runs whose names begin so")
    asked = parser.parse_args(arguments)
    run_all(asked.runs, asked.out, asked.workers, asked.seconds, asked.part)
