"""Private parts of torch are named in one module, with what is lost without them, and this torch has them all."""

import ast
from pathlib import Path

import pytest

from conv2attn import torch_internals
from conv2attn.errors import UsageError

PACKAGE = Path(torch_internals.__file__).parent


def is_private(dotted: str) -> bool:
    """Whether a name of torch has a part that begins with one underscore."""
    first, *parts = dotted.split(".")
    return (
        first == "torch"
        and parts[:1] != ["ops"]
        and any(part.startswith("_") and not part.startswith("__") for part in parts)
    )


def private_uses(source: str) -> set[str]:
    """The private names of torch that `source` imports or reads."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
    return {name for name in names if is_private(name)}


@pytest.mark.parametrize(
    "source",
    [
        "from torch._ops import OpOverload",
        "import torch._dynamo",
        "from torch.utils import _pytree",
        "y = torch._C.x(1)",
    ],
)
def test_a_private_use_is_seen(source):
    assert private_uses(source)
    assert private_uses("import torch\ntorch.nn.Module.__init__\nfrom torch import nn") == set()


def test_no_other_module_uses_private_parts_of_torch():
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "torch_internals.py"]
    uses = {file.relative_to(PACKAGE).as_posix(): private_uses(file.read_text()) for file in files}
    assert {file: names for file, names in uses.items() if names} == {}


def test_no_part_is_gone():
    """The failure prints the parts that this torch lacks, each with what is lost."""
    assert torch_internals.GONE == {}


def test_a_part_that_is_gone_is_named_with_what_is_lost(monkeypatch):
    monkeypatch.setattr(torch_internals, "GONE", {})
    part = torch_internals.internal("torch._C", "no_such_part", "the price of convolutions")
    module = torch_internals.internal("torch._no_such_module", "part", "files")
    with pytest.raises(UsageError, match=r"C2A003 .*torch\._C\.no_such_part, which is needed for the price of conv"):
        part(1, key=2)
    with pytest.raises(UsageError, match="files"):
        module()
    assert set(torch_internals.GONE) == {"torch._C.no_such_part", "torch._no_such_module.part"}
    assert torch_internals.internal("torch._C", "no_such_part", "a flag", instead=False) is False
