"""Families of torch's operators by their effect on numbers: view, move, compute, or read unsoundly.

An operator in no family and without a rule leaves the answer undecided, and is named.
"""

TEMPLATES = {
    *("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "empty_like", "new_empty"),
    "new_empty_strided",
}
"""Operators that read only the shape of a tensor."""
VIEWS = {
    *("view", "as_strided", "permute", "transpose", "select", "slice", "expand", "unsqueeze", "squeeze", "split"),
    *("split_with_sizes", "unbind", "diagonal", "unfold", "detach", "alias", "_reshape_alias", "t", "lift_fresh"),
    *("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes"),
}
PADS = {f"{mode}_pad{axes}d" for mode in ("reflection", "replication") for axes in (1, 2, 3)}
NEAREST = {*(f"upsample_nearest{axes}d" for axes in (1, 2, 3)), "_upsample_nearest_exact2d"}
MOVES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*PADS, *NEAREST), ("self",)),
    **dict.fromkeys(("clone", "contiguous", "roll", "flip", "repeat", "tril", "triu", "take", "rot90"), ("self",)),
    **dict.fromkeys(
        ("index_select", "gather", "index", "_unsafe_index", "im2col", "diag_embed", "_reshape_copy"), ("self",)
    ),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"), ("self",)),
    **dict.fromkeys(("cat", "stack"), ("tensors",)),
    **dict.fromkeys(("constant_pad_nd", "masked_fill", "index_fill"), ("self", "value")),
    **dict.fromkeys(("slice_scatter", "select_scatter"), ("self", "src")),
    "where": ("self", "other"),
    "index_put": ("self", "values"),
    "scatter": ("self", "src", "value"),
    "index_copy": ("self", "source"),
    "embedding": ("weight",),
}
"""Operators that move numbers, with the arguments that hold them; other arguments are constants."""
DECOMPOSED = {
    *("native_layer_norm", "native_group_norm", "_fused_rms_norm", "baddbmm", "addmv", "mv", "dot", "addcmul"),
    *("addcdiv", "gelu", "glu", "silu", "hardtanh", "hardsigmoid", "hardswish", "lerp", "rsub"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
}
"""Operators that torch decomposes into others, whose rules then apply."""
WHOLE = {
    *("argmax", "argmin", "sort", "topk", "kthvalue", "median", "cumprod", "prod", "_cdist_forward", "_trilinear"),
    *("grid_sampler_2d", "grid_sampler_3d", "all", "any"),
}
"""Functions of whole tensors, known only to be finite for finite arguments; only their first result is used.
"""
FLOAT_MOVES = {"im2col", *PADS, *NEAREST}
"""Moves that torch implements only for floats."""
MIXED = {"cat", "stack", "where"}
"""Moves that promote their dtypes."""
POLES = {"div", "true_divide", "reciprocal", "rsqrt", "pow", "addcdiv"}
REFUSED = {
    *("copysign", "signbit", "atan2", "arctan2", "nextafter", "angle", "digamma", "polygamma", "lgamma", "mvlgamma"),
    *("float_power", "fmod", "special_digamma", "special_polygamma", "special_zeta", "special_gammaln", "ldexp"),
    *("frexp", "floor_divide"),
}
"""Pointwise operators that read the sign of a zero, or have poles: the residue of a zero has no sign."""
TOTAL = {
    *("relu", "sigmoid", "tanh", "exp", "exp2", "erf", "erfc", "gelu", "silu", "mish", "elu", "celu", "selu"),
    *("softplus", "leaky_relu", "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink", "threshold"),
    *("sin", "cos", "atan", "sinh", "cosh", "asinh", "expm1", "abs", "sign", "sgn", "round", "floor", "ceil"),
    *("trunc", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "where", "masked_fill", "eq", "ne", "lt"),
    *("le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "log_sigmoid_forward"),
    *("heaviside", "isnan", "isinf", "isfinite", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"),
}
"""Real functions that are finite wherever their operands are."""
COMMUTATIVE = {"eq", "ne", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"}
