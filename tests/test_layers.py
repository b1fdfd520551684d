"""A district imports only those below it, and every file of tests is collected."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from forks import import_with_rooms, run_apart

import conv2attn
from conv2attn.errors import UsageError
from conv2attn.extras import EXTRAS, optional
from conv2attn.theory.basis.basis import LIBRARY_READERS

LAYERS = [
    {"__init__", "__main__"},
    {"cli"},
    {"lab.explore"},
    {"lab", "callbacks"},
    {"plots"},
    {"examples"},
    {"files"},
    {"testing"},
    {"span"},
    {"equality"},
    {"networks"},
    {"layers.theorem"},
    {"layers.framework"},
    {"layers.attention"},
    {"layers"},
    {"proofs"},
    {"theory.bounds"},
    {"theory.basis"},
    {"theory", "theory.score_terms"},
    {"report"},
    {"arguments"},
    {"generators"},
    {"verdicts", "choices", "torch_internals", "extras"},
    {"errors", "suffixes"},
]
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}


def imported_modules(source: str, module: str, is_package: bool) -> set[str]:
    """Absolute names of all that `source` imports, wherever it stands: in functions and under TYPE_CHECKING too."""
    package = module if is_package else module.rpartition(".")[0]
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def layer_of(name: str) -> str:
    """The entry of the list that a dotted name belongs to: `conv2attn.theory.basis.grid` is in `theory.basis`.

    A name of the package itself, such as the public function in `from conv2attn import convert`, is `__init__`'s.
    """
    parts = name.split(".")[1:]
    return next((entry for entry in (".".join(parts[:2]), *parts[:1]) if entry in DEPTH), "__init__")


def upward_imports(package: Path) -> list[str]:
    """Every import of `package` that does not go down the list, and every file that has no place in it."""
    found = []
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join([package.name, *(parts[:-1] if is_package else parts)])
        own = layer_of(module)
        if own == "__init__" and parts not in {("__init__",), ("__main__",)}:
            found.append(f"{module} has no place in LAYERS")
            continue
        for name in sorted(imported_modules(file.read_text(), module, is_package)):
            if name.split(".")[0] != package.name or layer_of(name) == own:
                continue
            if DEPTH[layer_of(name)] <= DEPTH[own]:
                found.append(f"{module} imports {name}")
    return found


def test_dependencies_point_down():
    package = Path(conv2attn.__file__).parent
    assert len(list(package.rglob("*.py"))) > 1
    assert upward_imports(package) == []


def test_each_room_is_imported_alone(tmp_path):
    """In a process that has nothing of the package yet: two rooms that import each other fail where one comes first."""
    package, imported = Path(conv2attn.__file__).parent, tmp_path / "imported.txt"
    rooms = {".".join(file.parent.relative_to(package.parent).parts) for file in package.rglob("__init__.py")}
    run_apart(import_with_rooms, "conv2attn", imported)
    assert rooms - {*imported.read_text().split()} == set()
    assert len(rooms) > 20


def test_upward_imports_are_found(tmp_path):
    planted = {
        "theory/basis/grid.py": "if TYPE_CHECKING:\n    from ...networks import resnet\n",
        "theory/bounds.py": "def late():\n    import conv2attn.layers.theorem\n",
        "equality/layer.py": "from conv2attn import convert\n",
        "equality/rank.py": "from conv2attn.span import check_span\n",
        "layers/attention/__init__.py": "from . import engines\nfrom ... import errors\nfrom ...theory import basis\n",
        "layers/attention/engines/dense.py": "from ..layer import scores\nfrom ....cli import text\n",
        "odds/ends.py": "import torch\n",
    }
    for name, source in planted.items():
        file = tmp_path / "conv2attn" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert upward_imports(tmp_path / "conv2attn") == [
        "conv2attn.equality.layer imports conv2attn.convert",
        "conv2attn.equality.rank imports conv2attn.span.check_span",
        "conv2attn.layers.attention.engines.dense imports conv2attn.cli.text",
        "conv2attn.odds.ends has no place in LAYERS",
        "conv2attn.theory.basis.grid imports conv2attn.networks.resnet",
        "conv2attn.theory.bounds imports conv2attn.layers.theorem",
    ]


def test_the_districts_are_the_folders_from_the_bottom_up():
    entries = [
        max(depth for name, depth in DEPTH.items() if name.split(".")[0] == each) for each in conv2attn.DISTRICTS
    ]
    assert entries == sorted(entries, reverse=True)


@pytest.mark.parametrize("district", conv2attn.DISTRICTS)
def test_a_district_says_what_it_answers_and_names_three_public_names(district):
    text = (Path(conv2attn.__file__).parent / district / "README.md").read_text()
    assert text.startswith(f"# {district}\n")
    assert text.count("\n") <= 45
    assert "```text\n" in text
    names = re.findall(r"^- `(conv2attn\.[\w.]+)", text, re.M)
    assert len(names) == 3
    for name in names:
        home, _, last = name.rpartition(".")
        assert hasattr(__import__(home, fromlist=[last]), last), name
    below = conv2attn.DISTRICTS[: conv2attn.DISTRICTS.index(district)]
    assert re.search(r"^May import: (.*)\.$", text, re.M)[1] == (
        ", ".join(f"`{each}`" for each in below) or "no other district"
    )


def test_every_file_of_tests_is_collected():
    root = Path(__file__).parents[1]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["python_files"]
    paths = [path for path in (root / "tests").rglob("*.py") if re.search(r"^def test_", path.read_text(), re.M)]
    assert [path for path in paths if not any(path.match(pattern) for pattern in patterns)] == []


def optional_imports(source: str) -> list[str]:
    """Libraries of extras that a source imports as it runs, and not through `conv2attn.extras`."""
    libraries = {*EXTRAS, "lightning", "pytorch_lightning"}
    if not any(library in source for library in libraries):  # parsing takes longer
        return []
    tree = ast.parse(source)
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    apart = {id(inner) for node in typing for inner in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if id(node) in apart:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append(str(node.module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "find_spec")):
            found += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    return [each for each in found if each.partition(".")[0] in libraries]


def test_optional_libraries_are_imported_by_one_function():
    """Readers of a library's own layers are exempt: they are imported once a layer of it exists (`LIBRARY_READERS`)."""
    readers = {home.rpartition(".")[2] for library, home in LIBRARY_READERS.items() if library != "torch"}
    for path in (Path(conv2attn.__file__).parent).rglob("*.py"):
        if path.stem not in readers:
            assert optional_imports(path.read_text()) == [], path


@pytest.mark.parametrize(
    "planted",
    ["import pandas", "def f():\n    from matplotlib.figure import Figure", "import_module('onnx.helper')"],
)
def test_a_planted_import_is_found(planted):
    assert optional_imports(planted)
    assert optional_imports(f"if TYPE_CHECKING:\n    {planted.splitlines()[-1].strip()}") == []


@pytest.mark.parametrize("library", EXTRAS)
def test_a_missing_library_names_its_extra(library, monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    extra = EXTRAS[library]
    with pytest.raises(UsageError, match=rf"C2A003 this needs {library}, .*conv2attn\[{extra}\]"):
        optional(f"{library}.part", "this")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    distribution = {"PIL": "pillow", "sklearn": "scikit-learn"}.get(library, library)
    assert any(line.startswith(distribution) for line in project["optional-dependencies"][extra])
