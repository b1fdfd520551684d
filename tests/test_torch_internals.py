"""Private parts of torch are named in one module, with what is lost without them, and this torch has them all."""

import ast
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import fx, nn

from conv2attn import torch_internals
from conv2attn.errors import UsageError

PACKAGE = Path(torch_internals.__file__).parent
ATTRIBUTES = {
    **dict.fromkeys(("_modules", "_parameters", "_buffers"), "reading, converting and comparing networks"),
    **dict.fromkeys(("_apply", "_non_persistent_buffers_set"), "moving and loading layers"),
    **dict.fromkeys(("_forward_hooks", "_forward_pre_hooks"), "refusing or keeping hooks of layers"),
    **dict.fromkeys(("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"), "keeping hooks of layers"),
    "_forward_hooks_always_called": "keeping hooks of layers",
    **dict.fromkeys(("_global_forward_hooks", "_global_forward_pre_hooks"), "comparing under hooks on all modules"),
    "_global_forward_hooks_always_called": "comparing under hooks on all modules",
    **dict.fromkeys(("_compiled_call_impl", "_orig_mod", "_torchdynamo_orig_callable"), "refusing compiled code"),
    **dict.fromkeys(("_call_impl", "_wrapped_call_impl", "_conv_forward", "_output_padding"), "refusing own forwards"),
    "_reversed_padding_repeated_twice": "refusing convolutions whose padding was changed",
    **dict.fromkeys(("_graph", "_code", "_lineno_map", "_prologue_start"), "comparing graph modules"),
    "_metadata": "the versions of modules in state dicts",
    "_version": "converting deformable convolutions, whose inputs nothing may write to",
    "_is_view": "results of layers that are written to in place",
    "_make_wrapper_subclass": "fingerprints",
    "_cdata": "which tensors share memory",
    **dict.fromkeys(("_typed_storage", "_make_subclass", "_to_sparse", "_view_func"), "refusals of fingerprints"),
    **dict.fromkeys(("_schema", "_overloadname"), "fingerprints and stochastic arithmetic"),
}
"""Private attributes of torch's modules, tensors and operators, each with what is lost without it."""


def is_private(dotted: str) -> bool:
    """Whether a name of torch has a part that begins with one underscore."""
    first, *parts = dotted.split(".")
    return first == "torch" and any(part.startswith("_") and not part.startswith("__") for part in parts)


def objects_of_torch() -> list[object]:
    """Objects of torch whose private attributes the package might read."""
    tensor, network = torch.empty(0), nn.Sequential(nn.ConvTranspose2d(1, 1, 1))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of what torch imports of its own
        compiled = torch.compile(network), torch.compiler.disable(torch.relu)
    parts = fx.symbolic_trace(network), nn.modules.module, torch.ops.aten.add.Tensor
    return [tensor, tensor.untyped_storage(), network[0], network.state_dict(), *compiled, *parts]


OBJECTS = objects_of_torch()


def private_attributes(source: str) -> set[str]:
    """The private attributes of torch's objects that `source` reads, or names in a string."""
    nodes = [*ast.walk(ast.parse(source))]
    pieces = {id(piece) for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    nodes = [node for node in nodes if id(node) not in pieces]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    private = {name for name in names if re.fullmatch(r"_[a-z]\w*", name)}
    return {name for name in private if any(hasattr(each, name) for each in OBJECTS)}


def private_uses(source: str) -> set[str]:
    """The private names of torch that `source` imports, reads, or has in a string."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            names.add(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"torch\.[\w.]+$", node.value):
            names.add(node.value)
    return {name for name in names if is_private(name)}


@pytest.mark.parametrize(
    "source",
    [
        "from torch._ops import OpOverload",
        "import torch._dynamo",
        "from torch.utils import _pytree",
        "y = torch._C.x(1)",
        "y = torch.ops.aten._unsafe_view(x, (2,))",
        "kind.__module__ == 'torch._dynamo.eval_frame'",
    ],
)
def test_a_private_use_is_seen(source):
    assert private_uses(source)
    assert private_uses("import torch\ntorch.nn.Module.__init__\nfrom torch import nn") == set()


def test_no_other_module_uses_private_parts_of_torch():
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "torch_internals.py"]
    uses = {file.relative_to(PACKAGE).as_posix(): private_uses(file.read_text()) for file in files}
    assert {file: names for file, names in uses.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "layer._backward_hooks.clear()",
        "layer.weight._base",
        "getattr(layer, '_state_dict_hooks')",
        "operator._handle",
        "storage._shared_incref",
        "nn.modules.module._global_backward_hooks",
        "graph._tracer_cls",
    ],
)
def test_a_private_attribute_is_seen(source):
    assert private_attributes(source) - ATTRIBUTES.keys()
    assert private_attributes("layer.weight.shape; self._own_name; sys._getframe(1); f'{x}_y'") == set()


def test_private_attributes_of_torch_s_objects_are_named_with_what_is_lost():
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "torch_internals.py"]
    used = {file.relative_to(PACKAGE).as_posix(): private_attributes(file.read_text()) for file in files}
    unnamed = {file: names - ATTRIBUTES.keys() for file, names in used.items()}
    assert {file: names for file, names in unnamed.items() if names} == {}
    assert ATTRIBUTES.keys() == set().union(*used.values())


def test_no_attribute_is_gone():
    """The failure prints the attributes that this torch's objects lack, each with what is lost."""
    gone = {name for name in ATTRIBUTES if not any(hasattr(each, name) for each in OBJECTS)}
    assert {name: ATTRIBUTES[name] for name in gone} == {}


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
