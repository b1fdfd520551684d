"""Pointwise operators of two operands: dtypes, scalars and lone numbers that promote in other ways.

Call("add", "half", "int64 alone 2", "bool")    (image.half() + torch.tensor(2)).bool()
"""

import math
from typing import NamedTuple

import torch

GENERATOR = torch.Generator().manual_seed(7)
SHAPE = (3, 4)
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
SCALARS = [0, 1, 2, 3, 300, -1, 16777216, 16777217, 2**31 - 1, 0.0, -0.0, 1.0, 0.1, 0.5, 2.0, 3.0, 16777217.0, 1e-46]
ENDS = [1e39, -1.0, math.inf, -math.inf, math.nan, True, False]
EVERY_OTHER = torch.tensor([True, False, True, False])

LEFT = {
    "itself": lambda x: x,
    "once": lambda x: x * 1,
    "alone": lambda x: x[0, 0],
    "one": lambda x: x[0, :1],
    "minus itself": lambda x: x - x,
    "nothing of it": lambda x: x * 0,
    "exp": lambda x: (x * 1e-7).exp(),
    "square": torch.square,
    "abs": torch.abs,
    "log": torch.log,
    "relu": torch.relu,
    "positive": lambda x: x > 0,
    "int32 and one": lambda x: x.int() + 1,
    "uint8 of abs": lambda x: x.abs().to(torch.uint8),
    **{name: (lambda x, t=dtype: x.to(t)) for name, dtype in DTYPES.items() if name != "uint8"},
    **{f"{name} alone": (lambda x, t=dtype: x[0, 0].to(t)) for name, dtype in DTYPES.items() if name != "uint8"},
}


def numbers(dtype):
    """Numbers that this dtype holds, and 16777217, which float32 rounds."""
    if dtype == torch.bool:
        return [0, 1]
    if not dtype.is_floating_point:
        return [0, 1, 2] + ([] if dtype == torch.uint8 else [-1]) + ([300, 16777217] if dtype.itemsize > 1 else [])
    return [0, 1, 0.1, 2, -1, 300, -0.0] + ([16777217] if dtype.itemsize > 2 else [])


RIGHT = {
    **{repr(scalar): (lambda x, c=scalar: c) for scalar in SCALARS + ENDS},
    **{
        f"{name} {shape} {number}": (
            lambda x, t=dtype, n=number, s=shape: torch.tensor(n if s == "alone" else [n], dtype=t)
        )
        for name, dtype in DTYPES.items()
        for number in numbers(dtype)
        for shape in ("alone", "one")
    },
    **{f"the image, {name}": function for name, function in LEFT.items()},
}


def in_place(name):
    return lambda a, b: getattr(a.clone(), name)(b)


def set_all(a, b):
    result = a.clone()
    result[..., 0] = b
    return result


OPERATORS = {
    **{
        name: getattr(torch, name)
        for name in (
            *(
                "add",
                "sub",
                "mul",
                "div",
                "rsub",
                "remainder",
                "pow",
                "float_power",
                "maximum",
                "minimum",
                "fmax",
                "fmin",
            ),
            *(
                "eq",
                "ne",
                "lt",
                "le",
                "gt",
                "ge",
                "logical_and",
                "logical_or",
                "logical_xor",
                "bitwise_and",
                "bitwise_or",
            ),
            *("hypot", "xlogy", "heaviside", "logaddexp", "nextafter", "ldexp", "isclose", "bitwise_left_shift"),
        )
    },
    **{
        name: in_place(name)
        for name in ("add_", "sub_", "mul_", "div_", "eq_", "gt_", "copy_", "fill_", "logical_and_")
    },
    "pow_": in_place("pow_"),
    "add three times": lambda a, b: torch.add(a, b, alpha=3),
    "add no time": lambda a, b: torch.add(a, b, alpha=0),
    "where greater": lambda a, b: torch.where(a > 0.5, a, b),
    "every other": lambda a, b: torch.where(EVERY_OTHER, a, b),
    "positive filled": lambda a, b: a.masked_fill(a > 0, b),
    "every other filled": lambda a, b: a.masked_fill(EVERY_OTHER, b),
    "at least": lambda a, b: torch.clamp(a, min=b),
    "at most": lambda a, b: torch.clamp(a, max=b),
    "in place at least": lambda a, b: a.clone().clamp_(min=b),
    "joined": lambda a, b: torch.cat([a.reshape(-1), b.reshape(-1)]),
    "stacked": lambda a, b: torch.stack(torch.broadcast_tensors(a, b)),
    "between": lambda a, b: torch.lerp(a, b, 0.5),
    "as far as": lambda a, b: torch.lerp(a, a * 2, b),
    "product added": lambda a, b: torch.addcmul(a, a, b, value=2),
    "quotient added": lambda a, b: torch.addcdiv(a, a, b, value=2),
    "added from the right": lambda a, b: b + a,
    "multiplied from the right": lambda a, b: b * a,
    "divided from the right": lambda a, b: b / a,
    "power from the right": lambda a, b: torch.pow(b, a),
    "remainder from the right": lambda a, b: torch.remainder(b, a),
    "maximum from the right": lambda a, b: torch.maximum(b, a),
    "set": set_all,
}
AFTER = {
    "nothing": lambda y: y,
    "no time": lambda y: y.float() * 0,
    "isnan": torch.isnan,
    **{name: (lambda y, t=DTYPES[name]: y.to(t)) for name in ("float32", "float64", "int32", "bool")},
}


class Call(NamedTuple):
    """An operator, its operands, and what becomes of its result, by their names."""

    operator: str
    left: str
    right: str
    after: str


def new_call(source):
    after = "nothing" if source.random() < 0.5 else source.choice(list(AFTER))
    return Call(source.choice(list(OPERATORS)), source.choice(list(LEFT)), source.choice(list(RIGHT)), after)


def network(call):
    def run(image):
        operands = LEFT[call.left](image), RIGHT[call.right](image)
        return AFTER[call.after](OPERATORS[call.operator](*operands))

    return run


IMAGES = [
    torch.randn(SHAPE, generator=GENERATOR) * 3,
    torch.randint(-3, 4, SHAPE, generator=GENERATOR).float(),
    torch.tensor([[0.1, 0.5, -0.1, 1], [16777216, 300, 44, -1], [255, 2049, 0, -212]]),
    torch.zeros(SHAPE),
    torch.rand(SHAPE, generator=GENERATOR) * 1000,
    torch.ones(SHAPE),
    torch.full(SHAPE, -0.5),
    torch.randn(SHAPE, generator=GENERATOR) * 1e-3,
]
