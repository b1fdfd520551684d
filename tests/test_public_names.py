"""Code of the README, the documentation and the notebooks names public names alone: those of `docs/stability.md`."""

import ast
import json
import re
import textwrap
from pathlib import Path
from pkgutil import resolve_name

import pytest

import conv2attn

ROOT = Path(conv2attn.__file__).parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.ipynb"))
)
ROWS = (ROOT / "docs" / "stability.md").read_text().partition("| submodule | for |")[2].partition("\n\n")[0]
PUBLIC = {name for row in ROWS.strip().splitlines() for name in re.findall(r"`([\w.]+)`", row.split("|")[1])}


def blocks(page: str) -> list[str]:
    """The code of a page: cells of a notebook, blocks of Python, lines behind `>>>`."""
    text = (ROOT / page).read_text()
    if page.endswith(".ipynb"):
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    examples = re.findall(r"^ *>>> .*(?:\n *\.\.\. .*)*", text, re.M)  # a sentence may begin with an ellipsis
    prompts = re.findall(r"^ *(?:>>>|\.\.\.) (.*)", "\n".join(examples), re.M)
    written = (block for block in re.findall(r"```python\n(.*?)```", text, re.S) if ">>>" not in block)
    return [textwrap.dedent(block) for block in written] + ["\n".join(prompts)]


def named(code: str) -> set[tuple[str, str]]:
    """(module, name) of all that code imports from the package, or reads of it by a dotted name."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {(node.module, each.name) for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {(each.name, "*") for each in node.names}
        elif isinstance(node, ast.Attribute):
            found.add((ast.unparse(node.value), node.attr))
    return {(module, name) for module, name in found if re.fullmatch(r"conv2attn(\.\w+)*", module)}


def is_public(module: str, name: str) -> bool:
    """Whether a name is one that the page on stability promises: of the package, of a submodule, or a submodule."""
    if f"{module}.{name}" in PUBLIC or any(each.startswith(f"{module}.{name}.") for each in PUBLIC):
        return True
    if module == "conv2attn":
        return name in {*conv2attn.__all__, "*", "__version__"}
    if module not in PUBLIC:
        owner, _, attribute = module.rpartition(".")
        return is_public(owner, attribute) and isinstance(resolve_name(module), type)
    promised = resolve_name(module)
    own = getattr(promised, "__all__", None) or [each for each in vars(promised) if not each.startswith("_")]
    return name == "*" or name in own


@pytest.mark.parametrize("page", PAGES)
def test_code_for_readers_names_public_names_alone(page):
    assert [each for code in blocks(page) for each in sorted(named(code)) if not is_public(*each)] == []


@pytest.mark.parametrize(
    "planted",
    [
        "from conv2attn.plots.fact_pictures import draw_facts",
        "from conv2attn.span.reading import rows_of",
        "from conv2attn.errors import _nothing",
        "import conv2attn.networks.reading",
        "conv2attn.equality.kept.wanted(1)",
        "conv2attn.HOMES",
    ],
)
def test_a_name_of_the_inside_of_a_district_is_found(planted):
    assert any(not is_public(*each) for each in named(planted))


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_what_is_promised_is_there(module):
    assert resolve_name(module) is not None
