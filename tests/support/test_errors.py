import pickle

import pytest

from tosaic.support import errors
from tosaic.support.errors import BackendError, Error, OutOfMemoryError

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Error)]


def test_the_message_says_what_where_why_and_what_next():
    error = Error("no lowering", where="model.py:3 aten.foo", why="it is new", hint="decompose it")
    assert str(error).splitlines() == [
        "no lowering",
        "  at: model.py:3 aten.foo",
        "  because: it is new",
        "  try: decompose it",
    ]


def test_parts_that_are_not_known_leave_no_line():
    assert str(Error("no lowering")) == "no lowering"
    assert str(Error("no lowering", hint="decompose it")) == "no lowering\n  try: decompose it"


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_caught_as_error_and_keeps_its_parts_across_processes(kind):
    error = pickle.loads(pickle.dumps(kind("what", where="where", why="why", hint="hint")))
    assert type(error) is kind and isinstance(error, Error)
    assert (error.what, error.where, error.why, error.hint) == ("what", "where", "why", "hint")
    assert str(error) == str(kind("what", where="where", why="why", hint="hint"))


def test_too_little_memory_is_a_backend_error():
    assert issubclass(OutOfMemoryError, BackendError)
