"""Runs as files: what may be said in them, and how text is cut. Needs no PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import RUN, TEXT
from trinity import InputError
from train import _many, _text, load, parse


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (RUN.replace("lr = 3e-3", "learning_rate = 3e-3"), r"run.toml:19: unknown key `learning_rate` in \[optimizer\](.|\n)*expected one of: lr"),
        (RUN.replace("replicas", "replcas"), "did you mean `replicas`"),
        (RUN.replace("steps = 24", 'steps = "24"'), r"run.toml:3: `steps` is str, expected int"),
        (RUN + 'method = "trinty"\n', "did you mean `trinity`"),
        (RUN + 'method = "trinity"\n', "`bits` is 0"),
        (RUN + '[pipeline]\nbasis = "covarience"\n', "did you mean `covariance`"),
        (RUN + '[pipeline]\ncodec = "h256"\n', "did you mean `h265`"),
        (RUN + '[pipeline]\ncodec = "h264"\nbasis = "covariance"\n', "`basis` is `covariance` with `h264`"),
        (RUN + "[pipeline]\nstages = 3\n", "2 layers in 3 stages"),
    ],
)
def test_a_wrong_key_is_refused_with_its_line(text, why):
    with pytest.raises(InputError, match=why):
        parse(text)


def test_a_run_that_is_not_there_is_refused():
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
