"""Runs as files: what may be said in them, and how text is cut. Needs no PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import RUN, TEXT
from trinity import InputError
from train import _many, _text, load, parse


def test_a_wrong_key_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"run.toml:19: unknown key `learning_rate` in \[optimizer\]") as refused:
        parse(RUN.replace("lr = 3e-3", "learning_rate = 3e-3"))
    assert "expected one of: lr" in str(refused.value)
    with pytest.raises(InputError, match="did you mean `replicas`"):
        parse(RUN.replace("replicas", "replcas"))
    with pytest.raises(InputError, match=r"run.toml:3: `steps` is str, expected int"):
        parse(RUN.replace("steps = 24", 'steps = "24"'))
    with pytest.raises(InputError, match="did you mean `trinity`"):
        parse(RUN + 'method = "trinty"\n')
    with pytest.raises(InputError, match="`bits` is 0"):
        parse(RUN + 'method = "trinity"\n')
    with pytest.raises(InputError, match="did you mean `covariance`"):
        parse(RUN + '[pipeline]\nbasis = "covarience"\n')
    with pytest.raises(InputError, match="did you mean `h265`"):
        parse(RUN + '[pipeline]\ncodec = "h256"\n')
    with pytest.raises(InputError, match="`basis` is `covariance` with `h264`"):
        parse(RUN + '[pipeline]\ncodec = "h264"\nbasis = "covariance"\n')
    with pytest.raises(InputError, match="2 layers in 3 stages"):
        parse(RUN + "[pipeline]\nstages = 3\n")
    with pytest.raises(InputError, match="cannot read"):
        load("nowhere.toml")


def test_batches_are_those_of_their_numbers_and_held_out_text_is_held_out():
    corpus = _text.load(TEXT, 64)
    assert set(corpus.held_out) == {"python", "postgresql", "rust", "sqlite"}
    first = corpus.batch(1, 5, 0, 4, 64)
    assert first.shape == (4, 65) and (first == corpus.batch(1, 5, 0, 4, 64)).all()
    assert (first != corpus.batch(1, 5, 1, 4, 64)).any() and (first != corpus.batch(1, 6, 0, 4, 64)).any()
    train = corpus.train.tobytes()
    assert all(held.tobytes() not in train for held in corpus.held_out.values())
    items, truth = corpus.choices("rust", 8)
    assert items.shape == (8, 4, 128) and len(truth) == 8
    with pytest.raises(InputError, match="cargo xtask text"):
        _text.load("nowhere.txt", 64)


def test_a_list_of_runs_gives_every_run_its_first_seed_first(tmp_path: Path):
    (tmp_path / "base.toml").write_text(RUN)
    listed = '[[runs]]\nname = "a"\nset = { "optimizer.lr" = 1e-3 }\nseeds = [1, 2]\n[[runs]]\nname = "b"\n'
    (tmp_path / "runs.toml").write_text('base = "base.toml"\n' + listed)
    assert [name for name, _ in _many.load(tmp_path / "runs.toml")] == ["a@1", "b@1", "a@2"]
    (tmp_path / "runs.toml").write_text('base = "base.toml"\n' + listed.replace("optimizer.lr", "optimizer.lrr"))
    with pytest.raises(InputError, match="unknown key `optimizer.lrr`"):
        _many.load(tmp_path / "runs.toml")
