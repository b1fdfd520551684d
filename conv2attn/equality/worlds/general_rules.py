"""Selects the rule of an operator: its own, direct computation, a function of one number, or none."""

from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.families import MOVES
from conv2attn.equality.worlds import arithmetic as arithmetic  # these register rules
from conv2attn.equality.worlds import largest as largest
from conv2attn.equality.worlds import layouts as layouts
from conv2attn.equality.worlds import softmaxes as softmaxes
from conv2attn.equality.worlds.all_copies import in_copy, wide
from conv2attn.equality.worlds.arithmetic import OPERATORS
from conv2attn.equality.worlds.shadows import COPIES, LEAST, Shadow, Unfollowed, is_number, is_shadow
from conv2attn.equality.worlds.steps import RULES, Step, has_large_numbers
from conv2attn.torch_internals import tree_leaves

# Computed in every copy, as views are: multilinear or rational functions, roots, norms, and reorderings.
COMPUTED = {
    *MOVES,
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    *("native_layer_norm", "native_group_norm", "_fused_rms_norm", "convolution", "_convolution", "mm", "bmm"),
    *("addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "neg", "reciprocal", "pow", "mean", "sum", "prod"),
    *("var", "var_mean", "std", "cumsum", "addcmul", "addcdiv", "lerp", "linalg_vector_norm", "norm", "avg_pool2d"),
    *("avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "col2im", "index_add", "scatter_add", "polar"),
    *("complex", "_fft_r2c", "_fft_c2c", "_fft_c2r", "grid_sampler_2d", "linalg_cross", "trace", "copy", "fill"),
    *("_trilinear", "zero", "_index_put_impl", "unsafe_split", "unsafe_split_with_sizes", "lift_fresh_copy"),
}
RESIZED = "upsample_", "_upsample_"
ASKING = {"_local_scalar_dense", "equal", "is_nonzero", "allclose", "item", "nonzero"}
ROOTS = {"sqrt", "rsqrt", "pow", "linalg_vector_norm", "norm"}
PRODUCTS = {"mul", "div", "square", "pow", "prod"}
FEW = 8  # with fewer numbers, two worlds may agree by chance in their signs or order


def is_followed(func: Any, name: str) -> bool:
    """Whether the operator has a result to follow; an assertion has none.

    Raises:
        Unfollowed: the operator is from another library, writes to another tensor than its first, or reads a number.
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
    """Leaves to the full run the differences that two float32 worlds might not show."""
    oracles, count = step.watch.oracles, tree_leaves(step.out)[0].numel()
    # Roots lose signs, and maxima lose smaller numbers: with few numbers, two worlds may agree although networks
    # differ.
    few = count < FEW and (step.name in largest.LARGEST or step.name in ROOTS)
    if "norm" in step.name:
        few = few and count == step.plain[0].numel()
    if few or step.name == "grid_sampler_2d":
        oracles.refuse_quick(f"{step.name}: signs or order of few numbers")
    if step.name in ("add", "sub", "rsub") and any(map(has_large_numbers, step.args)):
        oracles.refuse_quick("exact numbers so large that float32 loses others beside them")


def result_of(step: Step) -> Any:
    """The shadows of an operator's results.

    Raises:
        Unfollowed: the operator has no rule, or its rule does not fit these arguments.
    """
    refuse_few(step)
    result = RULES[step.name](step) if step.name in RULES else NotImplemented
    if result is NotImplemented:
        computed = step.is_view or step.name in COMPUTED or step.name.startswith(RESIZED)
        result = step.computed() if computed else pointwise(step)
    if step.name in PRODUCTS:
        refuse_vanished(step, result)
    return result


def refuse_vanished(step: Step, product: Any) -> None:
    """Refuses products of nonzero numbers that are too small to store, since all networks then look equal."""
    if not isinstance(product, Shadow) or not bool((product.of(-COPIES) == 0).any()):  # in a world of small numbers
        return
    first, *others = in_copy(step.args, -COPIES)
    if step.name in OPERATORS:
        others = [t.sgn() if isinstance(t, Tensor) else t for t in others]
    signs = wide(step.func)(first.sgn() if isinstance(first, Tensor) else first, *others, **step.kwargs)
    if bool(((product.of(-COPIES) == 0) & (signs != 0)).any()):
        raise Unfollowed(f"{step.name} of numbers so small that their product vanishes")


def pointwise(step: Step) -> Any:
    """Any other function of one number is an oracle under its name and its Python numbers."""
    leaves = tree_leaves(step.args, is_leaf=is_shadow)
    tensors = [t for t in leaves if isinstance(t, (Shadow, Tensor))]
    if torch.Tag.pointwise not in step.func.tags or len(tensors) != 1 or not is_number(step.out):
        raise Unfollowed(f"no rule for {step.name}")
    rest = {name: value for name, value in step.bound.items() if name not in ("self", "input") and value is not None}
    written = {name: step.stored(value) if isinstance(value, (int, float)) else value for name, value in rest.items()}
    name = " ".join([step.name, *(f"{key}={value}" for key, value in written.items())])
    return step.oracle(name, step.x, LEAST if step.name == "exp" else None)
