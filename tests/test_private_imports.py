"""Tests stand on names that fronts of rooms export, so that a function can move in its room without felling a file."""

import ast
from pathlib import Path
from pkgutil import resolve_name

import pytest

import conv2attn

PACKAGE = Path(conv2attn.__file__).parent
TESTS = Path(__file__).parent
PLACES = {
    path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".") for path in PACKAGE.rglob("*.py")
}
FRONTS = {place.removesuffix(".__init__") for place in PLACES if place.endswith(".__init__")}
MOST = 105
"""Imports of private names in tests; to be lowered with each that goes."""


def is_private(module: str, name: str) -> bool:
    """Whether a name begins with an underscore, or is one of a module inside a room, or that module.

    A front is the `__init__` of a package; modules beside the rooms, such as `errors`, are fronts too.
    """
    if name.startswith("_") and not name.endswith("__"):
        return True
    if module not in FRONTS:
        return module.count(".") > 1
    exported = getattr(resolve_name(module), "__all__", ())
    return module != "conv2attn" and name not in exported and f"{module}.{name}" in PLACES


def private_imports(source: str) -> list[tuple[str, str]]:
    """(module, name) of what a source imports of the inside of a room, each as often as it stands there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found += [(str(node.module), each.name) for each in node.names]
        elif isinstance(node, ast.Import):
            found += [each.name.rpartition(".")[::2] for each in node.names if each.name not in FRONTS]
    return [
        (module, name) for module, name in found if module.split(".")[0] == "conv2attn" and is_private(module, name)
    ]


def test_tests_import_no_more_private_names():
    found = {path: private_imports(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    count = sum(map(len, found.values()))
    most = max(found, key=lambda path: len(found[path]))
    assert count <= MOST, (
        f"tests import {count} names from the inside of rooms, more than {MOST}; import from the front of the room, "
        f"export the name there, or test what a public call gives ({most.name} has the most, {len(found[most])})"
    )
    assert count >= MOST - 10, f"tests import {count} private names: lower MOST, which is {MOST}"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("from conv2attn.theory.bounds.leak import _rivals, leaked_mass", 2),
        ("from conv2attn.theory.bounds import leaked_mass", 0),
        ("def late():\n    from conv2attn.span.reading import rows_of", 1),
        ("from conv2attn.span import reading, check_span, graded_facts", 1),
        ("import conv2attn.span.reading as inner, conv2attn.span, conv2attn", 1),
        ("from conv2attn.equality.fingerprint import identify, field", 1),
        ("from conv2attn.errors import UsageError, _nothing", 1),
        ("from conv2attn import certify, errors, __version__", 0),
        ("from conv2attn.lab import training, training_recipe", 1),
        ("from elsewhere.inner.part import name", 0),
    ],
)
def test_a_name_of_the_inside_is_found(source, count):
    assert len(private_imports(source)) == count
