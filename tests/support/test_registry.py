"""Tables of classes: found in files and in installed packages, and every mistake named."""

from __future__ import annotations

import pytest
from drop_in import install

from tosaic.support.errors import Error
from tosaic.support.registry import Registry

QUINCE = """
from test_registry import TABLES

@TABLES[-1].register
class Added:
    name = "quince"
"""
TABLES: list[Registry] = []


@pytest.fixture
def fruits(tmp_path, monkeypatch) -> Registry:
    """An empty table over a package of its own, of one empty file."""
    package = f"orchard{len(TABLES)}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "tree.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    TABLES.append(Registry("fruit", package, "orchard.fruits"))
    return TABLES[-1]


def _fruit(name: str, qualname: str = "Fruit") -> type:
    return type("Fruit", (), {"name": name, "__qualname__": qualname})


def test_an_unknown_name_is_answered_with_the_nearest_or_the_list(fruits):
    fruits.register(_fruit("pear"))
    fruits.register(_fruit("apple", "Other"))
    assert list(fruits.known()) == ["apple", "pear"]
    with pytest.raises(Error, match=r"there is no fruit `appel`\n  try: did you mean `apple`\?"):
        fruits.find("appel")
    with pytest.raises(Error, match="there is no fruit `nut`\n  try: one of apple, pear"):
        fruits.find("nut")


def test_a_name_is_taken_once(fruits):
    first = fruits.register(_fruit("pear"))
    assert fruits.register(first) is first
    with pytest.raises(Error, match="there is another fruit `pear`"):
        fruits.register(_fruit("pear", "Other"))


def test_an_installed_package_adds_a_class(fruits, tmp_path, monkeypatch):
    install(fruits, "quince", QUINCE, tmp_path, monkeypatch)
    assert fruits.find("quince").__module__ == "quince"


def test_a_file_that_does_not_import_is_named(fruits, tmp_path):
    (tmp_path / fruits.package / "tree.py").write_text("import no_such_module\n")
    with pytest.raises(Error, match=r"the extension `orchard\d\.tree` does not import\n.* 'no_such_module'"):
        fruits.known()


def test_an_entry_point_to_nothing_is_named(fruits, tmp_path, monkeypatch):
    with pytest.raises(Error, match="the extension `medlar:Added` does not import"):
        install(fruits, "medlar", "", tmp_path, monkeypatch)
        fruits.known()
