"""Arrays of files: damaged ones, and those that memory cannot hold, are refused with a reason."""

import io
import zipfile

import numpy as np
import pytest

from tosaic.support import named_arrays
from tosaic.support.errors import Error
from tosaic.support.named_arrays import in_order, read_arrays


def test_arrays_come_by_name(tmp_path):
    np.savez(tmp_path / "some.npz", b=np.arange(2), a=np.zeros(3))
    np.save(tmp_path / "one.npy", np.ones(4))
    some, one = read_arrays(tmp_path / "some.npz"), read_arrays(tmp_path / "one.npy")
    assert isinstance(some, dict) and isinstance(one, np.ndarray)
    assert [len(array) for array in in_order(some, ["a", "b"])] == [3, 2]
    assert one.tolist() == [1.0] * 4


def test_what_is_no_array_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "some.npz", "w") as archive:
        archive.writestr("x.npy", b"text")
    with pytest.raises(ValueError, match="`x` is no array"):
        read_arrays(tmp_path / "some.npz")


def test_more_than_memory_holds_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(named_arrays, "_MOST_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros(1 << 20, np.int16))
    assert (tmp_path / "zeros.npz").stat().st_size < 1 << 14
    with pytest.raises(ValueError, match="it holds more than"):
        read_arrays(tmp_path / "zeros.npz")


@pytest.mark.parametrize("size", [0, 3, 40, 100])
def test_a_cut_file_says_why(tmp_path, size):
    whole = io.BytesIO()
    np.save(whole, np.ones(40))
    (tmp_path / "cut.npy").write_bytes(whole.getvalue()[:size])
    with pytest.raises(ValueError, match="Error: "):
        read_arrays(tmp_path / "cut.npy")


def test_a_name_of_no_input_is_refused():
    with pytest.raises(Error, match="there is no input `imaeg`") as caught:
        in_order({"imaeg": np.ones(1), "state": np.ones(1)}, ["image", "state"])
    assert caught.value.hint == "did you mean `image`?"
