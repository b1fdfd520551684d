"""Dependencies inside the package point down one list only, and every file of tests is collected."""

import ast
import re
import tomllib
from pathlib import Path

import conv2attn

LAYERS = [
    {"__init__", "__main__"},
    {"cli"},
    {"explore"},
    {"experiments", "callbacks"},
    {"plots"},
    {"examples"},
    {"checkpoints"},
    {"testing"},
    {"equality", "span"},
    {"models"},
    {"theorem", "recover", "express"},
    {"framework"},
    {"attention"},
    {"proofs"},
    {"bounds"},
    {"basis"},
    {"report"},
    {"arguments", "score_terms"},
    {"verdicts", "choices", "ecosystems", "torch_internals"},
    {"errors", "generators", "suffixes"},
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
    """The entry of the list that a dotted name belongs to: `conv2attn.theory.basis.grid` is in `basis`.

    A name of the package itself, such as the public function in `from conv2attn import convert`, is `__init__`'s.
    """
    entry = name.split(".")[1] if name.count(".") else "__init__"
    return entry if entry in DEPTH else "__init__"


def upward_imports(package: Path) -> list[str]:
    """Every import of `package` that does not go down the list, and every file that has no place in it."""
    found = []
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        if parts[0] not in DEPTH:
            found.append(f"{'.'.join(parts)} has no place in LAYERS")
            continue
        is_package = parts[-1] == "__init__"
        module = ".".join([package.name, *(parts[:-1] if is_package else parts)])
        for name in sorted(imported_modules(file.read_text(), module, is_package)):
            if name.split(".")[0] != package.name or layer_of(name) == parts[0]:
                continue
            if DEPTH[layer_of(name)] <= DEPTH[parts[0]]:
                found.append(f"{module} imports {name}")
    return found


def test_dependencies_point_down():
    package = Path(conv2attn.__file__).parent
    assert len(list(package.rglob("*.py"))) > 1
    assert upward_imports(package) == []


def test_upward_imports_are_found(tmp_path):
    planted = {
        "basis/grid.py": "if TYPE_CHECKING:\n    from ..models import resnet\n",
        "bounds.py": "def late():\n    import conv2attn.layers.theorem\n",
        "equality/layer.py": "from conv2attn import convert\n",
        "span/rank.py": "from conv2attn.equality import certify\n",
        "attention/__init__.py": "from . import engines\nfrom .. import errors\nfrom ..basis.grid import Grid\n",
        "attention/engines/dense.py": "from ..layer import scores\nfrom ...cli import text\n",
        "odds/ends.py": "import torch\n",
    }
    for name, source in planted.items():
        file = tmp_path / "conv2attn" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert upward_imports(tmp_path / "conv2attn") == [
        "conv2attn.layers.attention.engines.dense imports conv2attn.cli.text",
        "conv2attn.theory.basis.grid imports conv2attn.networks.resnet",
        "conv2attn.theory.bounds imports conv2attn.layers.theorem",
        "conv2attn.equality.layer imports conv2attn.convert",
        "odds.ends has no place in LAYERS",
        "conv2attn.span.rank imports conv2attn.equality.certify",
    ]


def test_every_file_of_tests_is_collected():
    root = Path(__file__).parents[1]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["python_files"]
    paths = [path for path in (root / "tests").rglob("*.py") if re.search(r"^def test_", path.read_text(), re.M)]
    assert [path for path in paths if not any(path.match(pattern) for pattern in patterns)] == []
