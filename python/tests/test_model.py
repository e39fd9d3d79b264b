"""A model through every door: one policy of what is coded, kept exact or tied, and the same bytes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import trinity
from folders import save_safetensors


@pytest.fixture
def model() -> dict[str, np.ndarray]:
    """What a small language model has, its output layer tied to the embedding."""
    random = np.random.default_rng(3)
    table = (random.normal(size=(256, 64)) * 0.02).astype(np.float32)
    layer = lambda rows, cols: (random.standard_t(5, size=(rows, cols)) * 0.05).astype(np.float32)  # noqa: E731
    return {
        "model.embed_tokens.weight": table,
        "model.layers.0.self_attn.q_proj.weight": layer(64, 64),
        "model.layers.0.self_attn.q_proj.bias": np.linspace(-1, 1, 320, dtype=np.float32),
        "model.layers.0.mlp.up_proj.weight": layer(192, 64),
        "model.layers.0.input_layernorm.weight": np.linspace(0.5, 2, 512, dtype=np.float32),
        "lm_head.weight": table.copy(),
        "position_ids": np.arange(300, dtype=np.int64),
        "mask": np.array([True, False, True]),
    }


RULES = {"exclude": ["up_proj"], "bits_for": {"*.q_proj.weight": 6.0}, "codec_for": {"embed": "uniform+ac", "lm_head": "uniform+ac"}}


@pytest.mark.parametrize("rules", [{}, RULES], ids=["plain", "rules"])
def test_every_door_gives_the_same_bytes(model, rules, tmp_path, trinity_command):
    save_safetensors(tmp_path / "m.safetensors", model)
    words = [f"--exclude={pattern}" for pattern in rules.get("exclude", ())]
    words += [f"--bits-for={pattern}={bits}" for pattern, bits in rules.get("bits_for", {}).items()]
    words += [f"--codec-for={pattern}={codec}" for pattern, codec in rules.get("codec_for", {}).items()]
    printed = json.loads(trinity_command("encode", "m.safetensors", "--bits", "4", "--json", "-o", "command.tri", *words))
    command = (tmp_path / "command.tri").read_bytes()

    summary = trinity.encode_file(tmp_path / "m.safetensors", tmp_path / "file.tri", bits=4, **rules)
    assert (tmp_path / "file.tri").read_bytes() == command
    assert summary["kinds"] == printed["kinds"] == trinity.plan(model, bits=4, **rules)

    trinity.save(tmp_path / "save.tri", model, bits=4, **rules)
    assert (tmp_path / "save.tri").read_bytes() == command

    coded = trinity.encode(model, bits=4, **rules)
    trinity.save(tmp_path / "encode.tri", coded)
    assert (tmp_path / "encode.tri").read_bytes() == command
    with ThreadPoolExecutor(2) as pool:
        assert trinity.encode(model, bits=4, executor=pool, **rules) == coded

    read = trinity.read(tmp_path / "command.tri")
    assert read.keys() == model.keys()
    for name, one in trinity.decode(coded).items():
        assert (read[name] == one).all(), name


def test_norms_biases_and_integers_stay_exact_and_ties_stay_ties(model, tmp_path):
    coded = trinity.encode(model, bits=4)
    back = trinity.decode(coded)
    reasons = {name: one.exact for name, one in coded.items()}
    assert reasons["model.layers.0.input_layernorm.weight"] == "a norm"
    assert reasons["model.layers.0.self_attn.q_proj.bias"] == "a bias"
    assert reasons["position_ids"] == "integers"
    assert reasons["lm_head.weight"] == "tied to `model.embed_tokens.weight`"
    for name in ("model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias", "position_ids", "mask"):
        assert (back[name] == model[name]).all(), name
    assert (back["lm_head.weight"] == back["model.embed_tokens.weight"]).all()
    assert (back["lm_head.weight"] != model["lm_head.weight"]).any()
    # The tie is written once: the file holds the values of one table.
    summary = trinity.save(tmp_path / "m.tri", model, bits=4)
    assert summary["values"] == sum(one.size for one in model.values()) - model["lm_head.weight"].size
    assert summary["bits_per_value"] <= 4
    assert (tmp_path / "m.tri").stat().st_size == summary["bytes"]


def test_the_error_is_over_what_was_coded(model, tmp_path):
    model["position_ids"] = np.full(300, 1 << 40, dtype=np.int64)
    summary = trinity.save(tmp_path / "m.tri", model, bits=4)
    back = trinity.read(tmp_path / "m.tri")
    names = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight"]
    error = sum(float(((back[name] - model[name]).astype(np.float64) ** 2).sum()) for name in names)
    energy = sum(float((model[name].astype(np.float64) ** 2).sum()) for name in names)
    assert summary["nmse"] == pytest.approx(error / energy, rel=1e-6)
    assert summary["coded"]["tensors"] == 3 and summary["exact"]["tensors"] == 5


def test_a_single_layer_encodes(tmp_path):
    random = np.random.default_rng(1)
    layer = {"weight": random.normal(size=(256, 256)).astype(np.float32), "bias": random.normal(size=256).astype(np.float32)}
    coded = trinity.encode(layer, bits=3)
    assert coded["bias"].exact == "a bias" and coded["weight"].exact is None
    assert (trinity.decode(coded["bias"]) == layer["bias"]).all()


def test_what_is_wrong_with_rules_is_said(model):
    with pytest.raises(trinity.InputError, match="exclude `lm_haed.weight` matches no tensor") as caught:
        trinity.encode(model, bits=4, exclude="lm_haed.weight")
    assert "lm_head.weight" in caught.value.help
    for wrong, why in (
        (lambda: trinity.plan(model, bits=4, codec_for={"q_proj.weight": "mp3"}), "no codec named `mp3`"),
        (lambda: trinity.encode(model, bits=4, exclude="*"), "nothing is left to code"),
        (lambda: trinity.encode(model, bits=4, calibrate="nosuch.cal"), "cannot read nosuch.cal"),
        (lambda: trinity.save("nosuch/m.tri", model, bits=4), "there is no folder nosuch"),
        (lambda: trinity.encode(model["lm_head.weight"], bits=4, exclude="x"), "for the tensors of a model"),
    ):
        with pytest.raises(trinity.InputError, match=why):
            wrong()


def test_a_number_format_stands_at_its_own_rate(model):
    coded = trinity.encode(model, bits=4.25, codec="mxfp4")
    assert coded["model.layers.0.mlp.up_proj.weight"].codec == "mxfp4"
    with pytest.raises(trinity.InputError, match="takes 4.2"):
        trinity.encode(model, bits=4, codec="mxfp4")


def test_containers_decode_from_bytes_and_paths(model, tmp_path):
    trinity.save(tmp_path / "m.tri", model, bits=4)
    by_path = trinity.decode(tmp_path / "m.tri")
    assert by_path.keys() == model.keys()
    one = trinity.encode(model["lm_head.weight"], bits=4)
    assert (trinity.decode(one.bytes) == trinity.decode(one)).all()
    with pytest.raises(trinity.InputError, match="no coded tensor: a .tri container begins with TRIN"):
        trinity.Encoded(b"abc")


def test_formats_that_no_codec_knows_are_carried():
    for x in np.array([True, False] * 200), np.arange(400, dtype=np.uint16):
        e = trinity.encode(x, lossless=True)
        back = trinity.decode(e)
        assert back.dtype == x.dtype and (back == x).all()
        assert (trinity.decode(trinity.encode([x, x], bits=3)[1]) == x).all()


def test_modules_are_there_when_they_are_asked_for():
    assert trinity.executors.encode_model is not None
    assert "line" in trinity.codecs() and "torch" in dir(trinity)
    with pytest.raises(AttributeError, match="nothing"):
        trinity.nothing


def test_a_build_names_its_commit_as_the_command_does(trinity_command):
    assert trinity_command("--version").strip() == f"trinity {trinity.__build__}"
    assert trinity.__build__.startswith(f"{trinity.__version__} (")


def test_a_file_that_is_no_calibration_is_refused(model, tmp_path):
    trinity.save(tmp_path / "m.tri", model, bits=4)
    with pytest.raises(trinity.InputError, match="is no calibration"):
        trinity.encode(model, bits=4, calibrate=tmp_path / "m.tri")
    (tmp_path / "text.txt").write_text("some text")
    with pytest.raises(trinity.InputError, match="a text calibrates a model that lies in a file"):
        trinity.encode(model, bits=4, calibrate=tmp_path / "text.txt")


def test_a_calibration_weighs_errors_by_what_layers_read(model, tmp_path):
    random = np.random.default_rng(5)
    name = "model.layers.0.mlp.up_proj.weight"
    mixed = random.normal(size=(64, 64)) * np.geomspace(4, 0.05, 64)
    moments = (mixed.T @ mixed / 64).astype(np.float32)

    def calibration(file, cost, embedding):
        costs = json.dumps({name: cost, "model.embed_tokens.weight": embedding})
        texts = {"trinity.calibration": "1", "costs": costs}
        trinity.save(tmp_path / file, {name: moments}, lossless=True, metadata=texts)
        return tmp_path / file

    calibration("c.tri", 4.0, 0.01)
    lost = {}
    for calibrate in None, tmp_path / "c.tri":
        back = trinity.decode(trinity.encode(model, bits=3, allocate="equal", calibrate=calibrate))
        error = (back[name] - model[name]).astype(np.float64)
        lost[calibrate is None] = float(np.trace(error @ moments @ error.T))
    assert lost[False] < 0.9 * lost[True], lost

    def bits(calibrate):
        plan = trinity.plan(model, bits=3, calibrate=calibrate)
        return {row["kind"]: row["bits_per_value"] for row in plan}

    # By costs, the weight that costs more has more bits; but an embedding is never coarser than its file.
    dear, cheap = bits(calibration("d.tri", 0.01, 4.0)), bits(tmp_path / "c.tri")
    assert dear["embedding"] > dear["linear"] + 0.1, dear
    assert cheap["embedding"] == pytest.approx(3, abs=0.01), cheap
    with pytest.raises(trinity.InputError, match="of another model"):
        trinity.encode({"x.weight": model[name]}, bits=3, calibrate=tmp_path / "c.tri")
