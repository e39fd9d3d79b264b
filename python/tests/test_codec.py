"""Arrays through codecs: what comes back, at what rate, from what kinds of array."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

import trinity
from folders import flipped


@pytest.mark.parametrize("codec", ["trinity", "line", "h265", "uniform+ac", "rtn-128g", "hadamard/uniform+ac"])
def test_a_rate_is_kept_and_the_error_is_what_decoding_shows(weights, codec):
    e = trinity.encode(weights, bits=3.5, codec=codec)
    assert e.bits_per_value <= 3.5
    assert e.bits_per_value == 8 * len(e.bytes) / weights.size
    back = trinity.decode(e)
    assert back.shape == weights.shape and back.dtype == weights.dtype
    wide = weights.astype(np.float64)
    assert ((wide - back) ** 2).sum() / (wide**2).sum() == pytest.approx(e.nmse, rel=1e-9)
    assert np.abs(wide - back).max() == pytest.approx(e.max_abs_error, rel=1e-9)


def test_an_error_is_kept(weights):
    e = trinity.encode(weights, nmse=0.003)
    assert 0 < e.nmse <= 0.003 and e.error == e.nmse and e.rate == e.bits_per_value


@pytest.mark.parametrize(
    "dtype",
    ["f8", "f4", "f2", "i1", "u1", "i2", "i4", "i8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
)
def test_every_number_format_comes_back_to_the_bit(dtype):
    x = (np.arange(3 * 5 * 40) % 97 - 40).reshape(3, 5, 40).astype(dtype)
    back = trinity.decode(trinity.encode(x, lossless=True))
    assert back.dtype == x.dtype and back.tobytes() == x.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 0, 3), (300,), (2, 3, 5, 64)])
def test_every_shape_comes_back(shape):
    x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for target in ({"bits": 16}, {"lossless": True}):
        assert trinity.decode(trinity.encode(x, **target)).shape == shape


def test_layouts_that_are_not_rows_are_read_as_they_look(weights):
    for view in (weights.T, weights[::2, 1::3], weights[:, ::-1], np.asfortranarray(weights)):
        assert (trinity.decode(trinity.encode(view, lossless=True)) == view).all()
    big_endian = weights.astype(">f4")
    assert (trinity.decode(trinity.encode(big_endian, lossless=True)) == weights).all()


def test_decoded_arrays_are_writable_and_own_their_memory(weights):
    back = trinity.decode(trinity.encode(weights, lossless=True))
    back[0, 0] = 5
    assert back[0, 0] == 5 and weights[0, 0] != 5


def test_lists_and_dictionaries_are_one_call(weights):
    several = [weights, weights[:50], weights[0]]
    coded = trinity.encode(several, bits=4)
    assert coded == [trinity.encode(x, bits=4) for x in several]
    assert [x.shape for x in trinity.decode(coded)] == [x.shape for x in several]
    named = trinity.encode({"a": weights, "b": weights.T}, bits=4)
    assert [e.name for e in named.values()] == ["a", "b"]
    assert trinity.decode(named)["b"].shape == weights.T.shape
    assert trinity.encode([], bits=4) == [] and trinity.decode([]) == []


def test_what_is_pickled_is_what_comes_back(weights):
    e = trinity.encode(weights, bits=3, name="layers.0.k_proj.weight")
    again = pickle.loads(pickle.dumps(e))
    assert again == e and hash(again) == hash(e)
    for field in trinity.Encoded.__slots__:
        assert getattr(again, field) == getattr(e, field), field
    of_bytes = trinity.Encoded(e.bytes)
    assert of_bytes == e and of_bytes.shape == e.shape and of_bytes.nmse is None


def test_what_no_loss_can_be_asked_of_is_kept_and_said(weights):
    broken = weights.copy()
    broken[3, 4] = np.inf
    e = trinity.encode(broken, bits=3)
    assert e.exact == "value 772 is inf" and trinity.decode(e).tobytes() == broken.tobytes()
    with pytest.raises(trinity.InputError, match="value 772 is inf; lossy codecs need finite values"):
        trinity.encode(broken, bits=3, strict=True)
    assert trinity.encode(weights[0, :10], bits=3).exact == "fewer than 256 values"


def test_an_unmeasured_encoding_is_the_same_bytes(weights):
    e = trinity.encode(weights, bits=3, measure=False)
    assert e == trinity.encode(weights, bits=3) and e.nmse is None


def test_damaged_bytes_are_an_error_and_never_a_crash(weights):
    whole = trinity.encode(weights[:8], bits=3).bytes
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        for damaged in flipped(whole, at, 0x10), whole[:at]:
            with pytest.raises(trinity.Error):
                trinity.decode(trinity.Encoded(damaged))


def test_mistakes_are_sentences_with_a_way_out(weights):
    with pytest.raises(trinity.InputError, match="no codec named `trinty`") as caught:
        trinity.encode(weights, bits=3, codec="trinty")
    assert caught.value.help == "did you mean `trinity`?"
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, trinity.Error)
    assert pickle.loads(pickle.dumps(caught.value)).help == caught.value.help
    for x, options, why in (
        *((weights, {"bits": wrong}, "expected a number above zero") for wrong in (0, -1, float("nan"), float("inf"))),
        (weights, {"bits": 3, "nmse": 0.1}, "found bits and nmse"),
        (weights.astype(np.complex128), {"bits": 3}, "number format complex128"),
        ({"x": object()}, {"bits": 3}, "no array of numbers"),
        (weights, {"bits": 3, "class_": "weights"}, "`weights` is no tensor class"),
    ):
        with pytest.raises(trinity.InputError, match=why):
            trinity.encode(x, **options)


def test_dlpack_is_read_without_a_copy(weights):
    class Foreign:
        def __dlpack__(self, **keywords):
            return weights.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return weights.__dlpack_device__()

    assert trinity.encode(Foreign(), bits=3) == trinity.encode(weights, bits=3)
    from trinity import _arrays

    assert np.shares_memory(_arrays.plain(Foreign(), "x")[4], weights)
    assert np.shares_memory(_arrays.plain(weights, "x")[4], weights)
