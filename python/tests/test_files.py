"""Files that Python and the command share, and the digits that both print."""

from __future__ import annotations

import json

import numpy as np
import pytest

import trinity
from processes import python


def test_the_command_encodes_an_array_to_the_same_bytes(weights, tmp_path, trinity_command):
    np.save(tmp_path / "x.npy", weights)
    for target, options in ({"bits": 3}, ["--bits", "3"]), ({"nmse": 0.01}, ["--nmse", "0.01"]), ({"lossless": True}, ["--lossless"]):
        printed = json.loads(trinity_command("encode", "x.npy", "--all", "--json", "--force", "-o", "x.tri", *options))
        e = trinity.encode(weights, name="x", **target)
        assert (tmp_path / "x.tri").read_bytes() == e.bytes
        assert printed["bits_per_value"] == e.bits_per_value
        if "lossless" not in target:
            assert (printed["nmse"], printed["mae"]) == (e.nmse, e.mae)


def test_the_command_decodes_what_python_saved(weights, tmp_path, trinity_command):
    named = {"a.weight": trinity.encode(weights, bits=3), "b.weight": trinity.encode(weights.T, nmse=0.1)}
    trinity.save(tmp_path / "model.tri", named)
    for name, e in named.items():
        trinity_command("decode", "model.tri", "--tensor", name, "--force", "-o", "one.npy")
        assert (np.load(tmp_path / "one.npy") == trinity.decode(e)).all()


def test_python_saves_a_model_as_the_command_does(weights, tmp_path, trinity_command):
    model = {f"layers.{at}.weight": weights * (at + 1) for at in range(3)}
    model["layers.0.bias"] = np.linspace(0, 1, 400, dtype=np.float32)
    model["steps"] = np.arange(300, dtype=np.int64)
    np.savez(tmp_path / "model.npz", **model)
    for options in ({}, {"allocate": "equal-slope"}, {"all": True}):
        words = [word for key, value in options.items() for word in ([f"--{key}"] if value is True else [f"--{key}", value])]
        printed = json.loads(trinity_command("encode", "model.npz", "--bits", "4", "--json", "--force", "-o", "cli.tri", *words))
        arrays = trinity.read(tmp_path / "model.npz")
        summary = trinity.save(tmp_path / "ours.tri", arrays, bits=4, force=True, **options)
        assert (tmp_path / "ours.tri").read_bytes() == (tmp_path / "cli.tri").read_bytes(), options
        assert summary["tensors"] == printed["tensors"] and summary["bits_per_value"] == printed["bits_per_value"]
        again = trinity.encode_file(tmp_path / "model.npz", tmp_path / "file.tri", bits=4, force=True, **options)
        assert again["bytes"] == summary["bytes"]


def test_what_the_command_wrote_loads(weights, tmp_path, trinity_command):
    np.savez(tmp_path / "m.npz", w=weights, flags=np.array([True, False, True]))
    trinity_command("encode", "m.npz", "--bits", "4", "-o", "m.tri")
    coded = trinity.load(tmp_path / "m.tri")
    assert sorted(coded) == ["flags", "w"] and coded["w"].codec == "trinity"
    assert trinity.decode(coded["flags"]).tolist() == [True, False, True]
    trinity.save(tmp_path / "again.tri", coded)
    for path in ("m.tri", "again.tri"):
        back = trinity.read(tmp_path / path)
        assert (back["w"] == trinity.decode(coded["w"])).all() and back["flags"].tolist() == [True, False, True]


def test_nothing_is_replaced_unasked(weights, tmp_path):
    path = tmp_path / "x.tri"
    e = trinity.encode(weights, bits=3)
    e.save(path)
    with pytest.raises(trinity.InputError, match="exists already"):
        e.save(path)
    e.save(path, force=True)
    assert path.read_bytes() == e.bytes
    with pytest.raises(trinity.Error, match="nowhere"):
        e.save(tmp_path / "nowhere" / "x.tri")


_FULL = """
import resource, sys
import numpy as np, trinity
x = np.random.default_rng(1).normal(size=(256, 512)).astype(np.float32)
coded = trinity.encode(x, lossless=True)
# As a full disk does: the file may grow to 4 KiB, and not beyond.
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for how in (lambda: coded.save("x.tri", force=True), lambda: trinity.save("x.tri", {"x": x}, bits=8, force=True)):
    try:
        how()
    except trinity.RunError as error:
        print(error)
"""


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path):
    (tmp_path / "x.tri").write_bytes(b"before")
    done = python("-c", _FULL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip().splitlines()
    assert len(said) == 2 and all("x.tri" in line and "File too large" in line for line in said), said
    assert [path.name for path in tmp_path.iterdir()] == ["x.tri"]
    assert (tmp_path / "x.tri").read_bytes() == b"before"


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "x.tri").write_bytes(b"TRIN and then nothing of use to anybody")
    np.save(tmp_path / "x.npy", np.ones(4))
    for door, name, why in (
        (trinity.load, "x.tri", "x.tri: not a valid tri file"),
        (trinity.read, "missing.npy", "missing.npy: opening the file failed: No such file"),
        (trinity.load, "x.npy", r"a npy file holds no coded tensors\nhelp: .*trinity\.read"),
    ):
        with pytest.raises(trinity.InputError, match=why):
            door(tmp_path / name)


def test_comparisons_have_the_digits_of_the_command(weights, tmp_path, trinity_command):
    np.save(tmp_path / "x.npy", weights)
    options = ["--codecs", "trinity,rtn", "--bits", "3,4", "--precondition", "none,hadamard"]
    printed = json.loads(trinity_command("compare", "x.npy", "--json", *options))
    rows = trinity.compare({"x": weights}, ["trinity", "rtn"], [3, 4], precondition=["none", "hadamard"])
    skipped = {"file", "encode_mb_s", "decode_mb_s"}
    without = lambda rows: [{key: row[key] for key in row if key not in skipped} for row in rows]
    assert without(rows) == without(printed) and len(rows) == 12
    assert without(trinity.compare(tmp_path / "x.npy", ["trinity", "rtn"], [3, 4], precondition=["none", "hadamard"])) == without(printed)
    assert {line["codec"] for line in rows.classes} >= {"trinity", "rtn"}
    pandas = pytest.importorskip("pandas")
    assert set(pandas.DataFrame(rows)["codec"]) >= {"trinity", "rtn"}


def test_info_has_the_digits_of_the_command(weights, tmp_path, trinity_command):
    np.save(tmp_path / "x.npy", weights)
    (printed,) = json.loads(trinity_command("tensors", "info", "x.npy", "--json"))
    (row,) = trinity.tensors_info({"x": weights})
    for key in printed.keys() - {"file", "offset"}:
        assert row[key] == printed[key], key


def test_sweeps_have_the_digits_of_the_command(tmp_path, trinity_command):
    printed = json.loads(trinity_command("sweep", "--set", "study.cluster.nic.area=100 mm2", "--top", "4", "--json"))
    answer = trinity.sweep(set={"study.cluster.nic.area": "100 mm2"}, top=4)
    assert answer == printed
    explained = json.loads(trinity_command("sweep", "explain", "1500", "--json"))
    assert trinity.explain(1500) == explained


def test_an_estimate_is_the_point_of_a_sweep():
    explained = trinity.explain(1500)
    axes = {f"{path}": value for path, value in explained["axes"].items() if value is not None}
    lines = trinity.estimate(set=axes)["lines"]
    assert lines == explained["lines"]
    name, value = next(iter(axes.items()))
    keyword = name.replace("-", "_").replace(".", "__")
    others = {path: value for path, value in axes.items() if path != name}
    assert trinity.estimate(set=others, **{keyword: value})["lines"] == lines


def test_mistakes_in_a_configuration_point_at_their_place(tmp_path):
    with pytest.raises(trinity.InputError, match="nic_per_gpu") as caught:
        trinity.estimate(set={"cluster.nic_per_gpu": 2})
    assert "nics-per-gpu" in str(caught.value)
    with pytest.raises(trinity.InputError, match="sweeps/lama-7b"):
        trinity.sweep("sweeps/lama-7b")


def test_validation_has_the_digits_of_the_command(trinity_command):
    printed = json.loads(trinity_command("validate", "--json"))
    answer = trinity.validate()
    assert answer["sets"] == printed and answer["breaches"] == []


def test_evaluations_have_the_digits_of_the_command(trinity_command):
    printed = json.loads(trinity_command("eval", "--kv", "rtn@4", "--windows", "1", "--json"))
    assert trinity.evaluate(kv="rtn@4", windows=1)[-1] == printed


def test_parts_of_the_command_make_the_whole(weights, tmp_path, trinity_command, in_shards):
    np.savez(tmp_path / "m.npz", a=weights, b=weights.T, c=weights[:100], d=np.arange(400.0))
    encode = ["encode", "m.npz", "--bits", "4", "--allocate", "equal-slope"]
    trinity_command(*encode, "-o", "whole.tri")
    assert in_shards(3, *encode) == (tmp_path / "whole.tri").read_bytes()


def test_explorations_have_the_digits_of_the_command(trinity_command):
    printed = json.loads(trinity_command("explore", "--codecs", "line", "--draws", "48", "--cells", "3", "--json"))
    assert trinity.explore(codecs="line", draws=48, cells=3) == printed
