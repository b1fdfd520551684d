"""Operators that shadows do not follow, and those that the few numbers of a quick run do not show."""

from typing import Any

from conv2attn.equality.worlds.largest import LARGEST
from conv2attn.equality.worlds.shadows import Unfollowed
from conv2attn.equality.worlds.steps import Step, has_large_numbers
from conv2attn.torch_internals import tree_leaves

ASKING = {"_local_scalar_dense", "equal", "is_nonzero", "allclose", "item", "nonzero"}
ROOTS = {"sqrt", "rsqrt", "pow", "linalg_vector_norm", "norm"}
FEW = 8  # numbers, below which two worlds may agree by chance in their signs or order


def is_followed(func: Any, name: str) -> bool:
    """Whether there is anything to follow; an assertion returns nothing.

    Raises:
        Unfollowed: it is another library's, writes elsewhere than into its first tensor, or asks for a number.
    """
    library = func._schema.name.split("::")[0]
    if library != "aten":
        raise Unfollowed(f"no rule for {library}::{name}")
    inplace = func._schema.is_mutable
    if not func._schema.returns and not inplace:
        return False
    if func._overloadname.endswith("out") or (inplace and not func._schema.arguments[0].alias_info):
        raise Unfollowed(f"{name} writes into another tensor than its first")
    if name in ASKING:
        raise Unfollowed("the code asks for a number of the input (control flow, a scalar)")
    return True


def refuse_few(step: Step) -> None:
    """Leaves to the full run what two worlds of float32 might not show."""
    oracles, count = step.watch.oracles, tree_leaves(step.out)[0].numel()
    # Roots and maxima forget signs and losers: with few numbers two worlds may agree where networks differ.
    few = count < FEW and (step.name in LARGEST or step.name in ROOTS)
    if "norm" in step.name:
        few = few and count == step.plain[0].numel()
    if few or step.name == "grid_sampler_2d":
        oracles.refuse_quick(f"{step.name}: signs or order of few numbers")
    if step.name in ("add", "sub", "rsub") and any(map(has_large_numbers, step.args)):
        oracles.refuse_quick("exact numbers so large that float32 loses others beside them")
