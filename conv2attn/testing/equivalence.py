"""Asserts that two modules compute the same, stricter than torch.allclose; and two networks, by their certificate."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, final, get_args

import numpy as np
import torch
from torch import Tensor

from conv2attn.arguments import check_choice, check_network
from conv2attn.errors import UsageError, real_number
from conv2attn.torch_internals import tree_map_only
from conv2attn.verdicts import Strength, Verdict

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
if TYPE_CHECKING:
    from torch import nn

    from conv2attn.equality import Certificate

Bound = float | Callable[..., Any]


def assert_equivalent(
    f: Callable[..., Any],
    g: Callable[..., Any],
    inputs: "SearchStrategy[Any] | Iterable[Any] | Tensor",
    *,
    tolerance: Bound | None = None,
) -> None:
    """`f(x)` equals `g(x)` on all `inputs`: same structure, dtype, device and shape, nothing empty, all finite.

    Args:
        f, g: modules, or functions of tensors; evaluated without gradients, each on a copy of the input.
        inputs: a tensor; an iterable of inputs, in which a tuple means positional arguments; or a Hypothesis strategy,
            with as many examples as its profile says.
        tolerance: None for bitwise equality up to the sign of zeros; otherwise the largest |f(x) - g(x)| allowed: a
            number, or a function of the input that returns a number or a tensor of the output's shape.
    Raises:
        AssertionError: the outputs differ (with the worst place), or there was no input.
        UsageError: `inputs` has a wrong type (C2A006), or the tolerance is not a number of at least 0 (C2A001).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> image = torch.randn(2, 3, 9, 11)
        >>> conv2attn.assert_equivalent(conv, conv2attn.convert(conv), image, tolerance=1e-5)
    """

    for name, function in (("f", f), ("g", g)):
        if not callable(function):
            check_network(function, name)
    if not isinstance(inputs, Tensor | Iterable) and not is_strategy(inputs):
        raise UsageError(
            "C2A006", f"inputs are of class {type(inputs).__name__}", "Pass a tensor, or a list of inputs."
        )
    if tolerance is not None and not callable(tolerance) and real_number(tolerance, "tolerance") < 0:
        raise UsageError("C2A001", f"tolerance={tolerance} is not a number of at least 0", "Pass one.")

    def check(drawn: Any) -> None:
        arguments = drawn if isinstance(drawn, tuple) else (drawn,)
        with torch.no_grad():
            left, right = (function(*tree_map_only(Tensor, Tensor.clone, arguments)) for function in (f, g))
        allowed = tolerance(*arguments) if callable(tolerance) else tolerance
        assert_same_output(left, right, allowed)

    if is_strategy(inputs):
        from hypothesis import given
        from hypothesis.errors import Unsatisfiable

        try:
            given(inputs)(check)()
        except Unsatisfiable as error:
            raise AssertionError("the strategy draws no input: nothing was compared") from error
        return
    drawn = [inputs] if isinstance(inputs, Tensor) else list(inputs)  # type: ignore[arg-type]
    require(bool(drawn), "no input: nothing was compared")
    for each in drawn:
        check(each)


def is_strategy(inputs: Any) -> "TypeGuard[SearchStrategy[Any]]":
    """Whether `inputs` is a strategy of Hypothesis, without importing Hypothesis."""
    strategies = sys.modules.get("hypothesis.strategies")
    return strategies is not None and isinstance(inputs, strategies.SearchStrategy)


def assert_same_output(left: Any, right: Any, tolerance: float | Tensor | None = None, where: str = "output") -> None:
    """Two outputs, tensors or nested sequences and mappings of tensors, are the same; see `assert_equivalent`.

    Raises:
        AssertionError: the outputs differ.
    """
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        assert_same_tensor(left, right, tolerance, where)
        return
    require(type(left) is type(right), f"{where} is {type(left).__name__} and {type(right).__name__}")
    if isinstance(left, Mapping):
        require(list(left) == list(right), f"{where} has the keys {list(left)} and {list(right)}")
        pairs = [(f"{where}[{key!r}]", left[key], right[key]) for key in left]
    else:
        require(isinstance(left, list | tuple), f"{where} is {type(left).__name__}, which holds no tensor")
        require(len(left) == len(right), f"{where} has {len(left)} and {len(right)} items")
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(left, right, strict=True))]
    require(bool(pairs), f"{where} is empty")
    for place, a, b in pairs:
        assert_same_output(a, b, tolerance, place)


def assert_same_tensor(left: Tensor, right: Tensor, tolerance: float | Tensor | None, where: str) -> None:
    """Two tensors are the same; see `assert_equivalent`.

    Raises:
        AssertionError: the tensors differ, with the worst place and the tolerance that would pass.
    """
    for attribute in ("dtype", "device", "shape"):
        a, b = getattr(left, attribute), getattr(right, attribute)
        require(a == b, f"{where} has {attribute} {a} and {b}")
    require(left.numel() > 0, f"{where} is empty")
    left, right = left.cpu(), right.cpu()  # MPS has no float64
    for name, side in (("first", left), ("second", right)):
        require(bool(side.isfinite().all()), f"{where} of the {name} is not finite everywhere")
    widest = torch.complex128 if left.is_complex() else torch.float64
    error = (left.to(widest) - right.to(widest)).abs()
    if not left.is_complex() and not left.is_floating_point():  # integers that float64 may round to the same number
        error = error.maximum((left != right).to(error))
    if tolerance is None:
        equal = torch.equal(left, right)
    else:
        allowed = torch.as_tensor(tolerance, dtype=error.dtype, device="cpu")
        fits = allowed.ndim == 0 or allowed.shape == error.shape
        require(fits, f"{where}: a tolerance of shape {tuple(allowed.shape)}")
        equal = bool((error <= allowed).all())
    if not equal:
        worst = int(error.argmax())
        place = tuple(map(int, np.unravel_index(worst, left.shape)))
        values = f"{left.flatten()[worst].item()} and {right.flatten()[worst].item()}"
        count = int((left != right).sum())
        raise AssertionError(
            f"{where} differs in {count} of {left.numel()} numbers, most at {place}: {values}; "
            f"a tolerance of {error.max().item():.3g} would pass"
        )


def require(condition: bool, message: str) -> None:
    """Raises AssertionError with `message` unless `condition`; also under `python -O`, unlike the statement."""
    if not condition:
        raise AssertionError(message)


UpTo = Literal["formula", "rounding"]
ACCEPTED = {
    "formula": (Strength.PROVED, Strength.IDENTIFIED, Strength.BOUNDED),
    "rounding": (Strength.PROVED, Strength.IDENTIFIED, Strength.BOUNDED, Strength.ROUNDED),
}
"""The strengths of *holds* that are enough. None is *sampled*: equal numbers on some inputs prove nothing else.
"""
WIDTH = 100  # columns of the certificate in a failure


@final
class NetworksDifferError(AssertionError):
    """Raised for two networks not known to be equal, with their `certificate`."""

    def __init__(self, certificate: "Certificate", up_to: UpTo):
        text = certificate.to_text(width=WIDTH)
        if certificate.verdict is Verdict.HOLDS:
            text = f"holds as {certificate.strength.value} only, but up_to={up_to!r} requires more\n{text}"
        super().__init__(text)
        self.certificate = certificate


def assert_same(
    first: "nn.Module",
    second: "nn.Module",
    *inputs: Any,
    up_to: UpTo = "formula",
    forward: Mapping[str, Any] | None = None,
    **options: Any,
) -> "Certificate":
    """`second` computes `first`, as `certify` decides; if that is refuted or undecided, the test fails.

    Args:
        inputs, forward: arguments of the networks' call; see `certify`.
        up_to: "formula": one formula or bound for all inputs covered by the certificate (proved, identified or
            bounded); "rounding": also networks with folded, merged or cast weights whose sections agree within rounding
            (*rounded*).
        options: further options of `certify`: input_size, match, seed and so on.
    Returns:
        The certificate.
    Raises:
        AssertionError: the networks are not known to be equal. The text is that of the certificate, with the place
            where the networks differ; the object is in `certificate`.
        UsageError: `up_to` is something else (C2A002), or see `certify`.
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> conv2attn.assert_same(conv, conv2attn.convert(conv), torch.randn(2, 3, 9, 11)).strength
        <Strength.PROVED: 'proved'>
    """
    from conv2attn.equality import certify

    check_choice(up_to, "up_to", get_args(UpTo))
    certificate = certify(first, second, *inputs, forward=forward, **options)
    if certificate.verdict is not Verdict.HOLDS or certificate.strength not in ACCEPTED[up_to]:
        raise NetworksDifferError(certificate, up_to)
    return certificate
