"""Tables of classes: found in files and in installed packages, and every mistake named."""

from __future__ import annotations

import sys

import pytest
from drop_in import install

from tosaic.support.errors import Error
from tosaic.support.registry import Registry


@pytest.fixture
def fruits(tmp_path, monkeypatch) -> Registry:
    """An empty table over a package of one empty file."""
    (tmp_path / "orchard").mkdir()
    (tmp_path / "orchard" / "__init__.py").write_text("")
    (tmp_path / "orchard" / "tree.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("orchard", "orchard.tree"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return Registry("fruit", "orchard", "orchard.fruits")


def _fruit(name: str, qualname: str = "Fruit") -> type:
    return type("Fruit", (), {"name": name, "__qualname__": qualname})


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(fruits):
    fruits.register(_fruit("pear"))
    fruits.register(_fruit("apple", "Other"))
    assert list(fruits.known()) == ["apple", "pear"]
    with pytest.raises(Error) as raised:
        fruits.find("appel")
    assert (raised.value.what, raised.value.why, raised.value.hint) == (
        "there is no fruit `appel`", "there are apple, pear", "did you mean `apple`?",
    )  # fmt: skip


def test_a_name_is_taken_once(fruits):
    first = fruits.register(_fruit("pear"))
    assert fruits.register(first) is first
    with pytest.raises(Error, match="there is another fruit `pear`"):
        fruits.register(_fruit("pear", "Other"))


def test_an_installed_package_adds_a_class(fruits, tmp_path, monkeypatch):
    install(fruits, "quince", 'class Added:\n    name = "quince"\n', tmp_path, monkeypatch)
    assert fruits.find("quince").__module__ == "quince"


def test_a_file_that_does_not_import_is_named(fruits, tmp_path):
    (tmp_path / "orchard" / "tree.py").write_text("import no_such_module\n")
    with pytest.raises(Error, match=r"the fruit `orchard\.tree` does not import\n.*No module named 'no_such_module'"):
        fruits.known()


def test_an_entry_point_to_nothing_is_named(fruits, tmp_path, monkeypatch):
    install(fruits, "medlar", "", tmp_path, monkeypatch)
    with pytest.raises(Error, match="the fruit `medlar:Added` does not import"):
        fruits.known()
