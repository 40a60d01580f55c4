import numpy as np
from synthetic import Gemm, Line

from tosaic.tuner.features import Columns
from tosaic.tuner.space import Schedule

TILED = {"rows": 4, "columns": 2, "depth": 8, "unroll": 3, "prefetch": 0, "pack": True}


def test_equal_schedules_have_equal_vectors_and_numbers_are_scaled():
    columns = Columns()
    vector = columns.vector(Line("a"), Schedule.of("line", x=7))
    assert np.array_equal(vector, np.array([1.0, 3.0, 3.0], np.float32))  # variant=line, line.x, x: log2(1 + 7)
    assert np.array_equal(vector, columns.vector(Line("b"), Schedule.of("line", x=7)))


def test_names_of_one_family_share_columns_and_texts_get_one_each():
    columns = Columns()
    first = columns.vector(Gemm(64), Schedule.of("tiled", order="ijk", **TILED))
    width = len(columns)
    same = columns.vector(Gemm(128), Schedule.of("tiled", order="ijk", **TILED))
    assert len(columns) == width
    assert np.count_nonzero(first != same) == 1  # the number of MACs
    columns.vector(Gemm(64), Schedule.of("tiled", order="kij", **TILED))
    assert len(columns) == width + 1


def test_the_matrix_pads_with_missing_values_and_cuts():
    columns = Columns()
    rows = columns.matrix([np.array([1, 2, 3], np.float32), np.array([4], np.float32)], 2)
    assert np.array_equal(rows, np.array([[1, 2], [4, np.nan]], np.float32), equal_nan=True)


def test_negative_features_keep_their_sign():
    class Signed(Line):
        def features(self, schedule):
            return {"slack": -3.0}

    assert Columns().vector(Signed("a"), Schedule.of("line", x=0)).tolist() == [1.0, 0.0, -2.0]
