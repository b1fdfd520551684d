"""Two networks are the same function, or a test fails with the certificate and the place where they part."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from conv2attn.arguments import check_choice
from conv2attn.verdicts import Strength, Verdict

if TYPE_CHECKING:
    from torch import nn

    from conv2attn.equality import Certificate

UpTo = Literal["formula", "rounding"]
ACCEPTED = {
    "formula": (Strength.PROVED, Strength.IDENTIFIED, Strength.BOUNDED),
    "rounding": (Strength.PROVED, Strength.IDENTIFIED, Strength.BOUNDED, Strength.ROUNDED),
}
"""The strengths of *holds* that are enough. None is *sampled*: equal numbers on some inputs show no equal networks."""
WIDTH = 100  # columns of the certificate in a failure


@final
class NetworksDifferError(AssertionError):
    """Two networks are not known to be the same; `certificate` says what is known."""

    def __init__(self, certificate: "Certificate", up_to: UpTo):
        found = certificate.to_text(width=WIDTH)
        if certificate.verdict is Verdict.HOLDS:
            found = f"holds as {certificate.strength.value} alone, and up_to={up_to!r} asks for more\n{found}"
        super().__init__(found)
        self.certificate = certificate


def assert_same(
    first: "nn.Module",
    second: "nn.Module",
    *inputs: Any,
    up_to: UpTo = "formula",
    forward: Mapping[str, Any] | None = None,
    **options: Any,
) -> "Certificate":
    """`second` computes `first`, as `certify` decides; where that is refuted or not decided, the test fails.

    Args:
        inputs, forward: as the networks are called; see `certify`.
        up_to: "formula": one formula or bound for all inputs of which the certificate speaks (proved, identified or
            bounded); "rounding": also networks with folded, merged or cast weights whose sections agree within rounding
            (*rounded*).
        options: further ones of `certify`: input_size, match, seed and so on.
    Returns:
        The certificate.
    Raises:
        AssertionError: they are not known to be the same. Its text is that of the certificate, with the place where the
            networks part; its `certificate` is the object.
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
