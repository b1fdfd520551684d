"""Checkpoints of the paper's authors (github.com/epfml/attention-cnn), read as our attention classifier.

Their keys, for layer N under `encoder.layer.N.`, and ours under `blocks.N.`; h heads, width d, P positions per axis:

| theirs | ours |
| --- | --- |
| `attention.self.attention_centers` (h, 2) | `attention.encoding.center` |
| `attention.self.attention_spreads` s (h) or S (h, 2, 2) | `alpha = s^2 / 2`, or `root = S^T`: `Sigma^-1 = S S^T` |
| `attention.self.{col,row}_embeddings` (2M - 1, P) | tables: `row` is axis 0 with `q.r`, else axis 1 |
| `attention.self.head_keys_{col,row}` (h, P) | `attention.encoding.bias`; with `q.r` there are none |
| `attention.self.{query,key}` (h d, d) | `attention.{query,key}` (h, d, d); queries divided by `sqrt(d)` |
| `attention.self.value` (d, h d) | `attention.output` (d, d, h), heads last |
| `attention.output.{dense,LayerNorm}` | `projection`, `first_norm` |
| `intermediate.dense`, `output.{dense,LayerNorm}` | `expand`, `contract`, `second_norm` |
| `features_upscale`, features (row, column, channel) of a patch | `embed`, features (channel, row, column) |
| `classifier` | `classify` |
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.networks.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.theory.score_terms import ScoreTerms

SELF_PREFIX = "attention.self."
SIDE, CHANNELS = 32, 3
"""Side and channels of CIFAR's images, on which the authors trained. They are assumed, since the weights of quadratic
heads do not show the side."""
READ_AS = "the paper's authors' classifier of 3x32x32 images"
LAYER_KEY = re.compile(r"encoder\.layer\.(\d+)\.")
UNUSED_KEYS = ("R", "relative_indices", "attention_mask", "mask_embedding", "cls_embedding")
"""Buffers, and parameters that their forward does not read."""
LINEAR_NAMES = {
    "attention.output.dense": "projection",
    "attention.output.LayerNorm": "first_norm",
    "intermediate.dense": "expand",
    "output.dense": "contract",
    "output.LayerNorm": "second_norm",
}


def recognise_published(state: Mapping[str, Tensor]) -> ClassifierPlan | None:
    """The plan whose classifier has the authors' keys and shapes, or None."""
    layers = sorted({int(match[1]) for key in state if (match := LAYER_KEY.match(key))})
    embed, first = state.get("features_upscale.weight"), {each.removeprefix("encoder.layer.0."): each for each in state}
    if embed is None or layers != list(range(len(layers))) or SELF_PREFIX + "value.weight" not in first:
        return None
    width, features = embed.shape
    patch = math.isqrt(features // CHANNELS)
    if CHANNELS * patch**2 != features or SIDE % patch:
        return None
    heads = tuple(state[f"encoder.layer.{n}.{SELF_PREFIX}value.weight"].shape[1] // width for n in layers)
    sizes: dict[str, Any] = {"patch": patch, "width": width, "layers": len(layers), "heads": heads, "side": SIDE}
    sizes |= {"hidden": len(state[first["intermediate.dense.weight"]]), "classes": len(state["classifier.weight"])}
    if len(set(heads)) == 1:
        sizes["heads"] = heads[0]
    spreads, tables = first.get(SELF_PREFIX + "attention_spreads"), first.get(SELF_PREFIX + "row_embeddings.weight")
    if spreads is not None:
        plan = ClassifierPlan("quadratic" if state[spreads].ndim == 1 else "generalised", **sizes)
    elif tables is not None:
        rows, positions = state[tables].shape
        if (rows + 1) // 2 < SIDE // patch:
            sizes["side"] = (rows + 1) // 2 * patch
        vr, qk = (SELF_PREFIX + key in first for key in ("head_keys_row.weight", "key.weight"))
        plan = ClassifierPlan("learned", ScoreTerms(qk=qk, qr=not vr, vr=vr), positions=positions, **sizes)
    else:
        return None
    try:
        with torch.device("meta"):
            expected = {key: value.shape for key, value in AttentionClassifier(plan).state_dict().items()}
        shapes = {key: value.shape for key, value in own_state(state, plan).items()}
    except (KeyError, RuntimeError, UsageError):
        return None
    return plan if shapes == expected else None


def own_state(state: Mapping[str, Tensor], plan: ClassifierPlan) -> dict[str, Tensor]:
    """The authors' tensors by our names and in our layout.

    Raises:
        KeyError: a tensor is missing or left over.
    """
    remaining = {key: value for key, value in state.items() if key.rpartition(".")[2] not in UNUSED_KEYS}
    remaining = {
        key: value for key, value in remaining.items() if not key.startswith(("features_downscale.", "pixelizer."))
    }
    renamed_state = {}
    weight = remaining.pop("features_upscale.weight")
    renamed_state["embed.weight"] = (
        weight.unflatten(1, (plan.patch, plan.patch, plan.channels)).movedim(3, 1).flatten(1)
    )
    renamed_state["embed.bias"] = remaining.pop("features_upscale.bias")
    for name in ("weight", "bias"):
        renamed_state[f"classify.{name}"] = remaining.pop(f"classifier.{name}")
    for number, heads in enumerate(plan.heads_of_layers):
        theirs, block = f"encoder.layer.{number}.", f"blocks.{number}."
        for their, our in LINEAR_NAMES.items():
            for name in ("weight", "bias"):
                renamed_state[f"{block}{our}.{name}"] = remaining.pop(f"{theirs}{their}.{name}")
        prefix = theirs + SELF_PREFIX
        keys = [key for key in remaining if key.startswith(prefix)]
        attention_state = {key.removeprefix(prefix): remaining.pop(key) for key in keys}
        attention = attention_tensors(attention_state, plan, heads)
        renamed_state |= {f"{block}attention.{name}": value for name, value in attention.items()}
    if remaining:
        raise KeyError(min(remaining))
    return renamed_state


def attention_tensors(remaining: dict[str, Tensor], plan: ClassifierPlan, heads: int) -> dict[str, Tensor]:
    """The tensors of one attention layer.

    Raises:
        KeyError: a tensor is missing or left over.
    """
    value = remaining.pop("value.weight").unflatten(1, (heads, plan.width))
    tensors = {"output": value.movedim(1, 2), "bias": remaining.pop("value.bias")}
    if plan.encoding == "learned":
        reach, biases = plan.side // plan.patch - 1, []
        for axis, name in enumerate(("row", "col") if plan.terms.qr else ("col", "row")):
            table = remaining.pop(f"{name}_embeddings.weight")
            middle = len(table) // 2
            tensors[f"encoding.tables.{axis}"] = table[middle - reach : middle + reach + 1]
            if plan.terms.vr:
                biases.append(remaining.pop(f"head_keys_{name}.weight"))
        if plan.terms.vr:
            tensors["encoding.bias"] = torch.stack(biases, 1)
    else:
        tensors["encoding.center"], spreads = remaining.pop("attention_centers"), remaining.pop("attention_spreads")
        if plan.encoding == "quadratic":
            tensors["encoding.alpha"] = spreads.square() / 2
        else:
            tensors["encoding.root"] = spreads.mT
    for name, scale, present in (("query", plan.width**-0.5, plan.terms.has_query), ("key", 1.0, plan.terms.has_key)):
        if present:
            tensors[name] = remaining.pop(f"{name}.weight").unflatten(0, (heads, plan.width)) * scale
            tensors[f"{name}_bias"] = remaining.pop(f"{name}.bias").unflatten(0, (heads, plan.width)) * scale
    if remaining:
        raise KeyError(min(remaining))
    return tensors
