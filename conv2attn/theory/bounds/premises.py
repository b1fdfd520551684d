"""How an engine computes, and the theorems that a bound may name: those whose premises were all checked.

The premises of a theorem are the fields of a class. A field is one check on a head or on an arithmetic. A theorem has
the name of its claim in proofs/, such as SOFT.

>>> sorted(claims_under([ArithmeticPremises.of(Arithmetic("float32"))], "SOFT"))
['SOFT']
>>> sorted(claims_under([ArithmeticPremises.of(Arithmetic("float32", fused=True))], "SOFT"))
['SOFT: maximum known before the sum', 'steps without a theorem']
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Self, final

from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM
from conv2attn.theory.bounds.formats import EXP_ULPS
from conv2attn.theory.bounds.sum_rounding import RoundingBound, convolution_bound

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@final
@dataclass(frozen=True)
class Arithmetic:
    """How one engine computes in one format on one device, as far as its rounding errors depend on it.

    Args:
        format: format of the products, a name in `FORMATS`; tf32 or bf32 if float32 operands may be cut to them.
        exp_ulps: the largest error of exp in a softmax, in units in the last place of a normal result.
        flushes: whether subnormal products or operands become 0.
        truncates: whether additions may truncate, as on tensor cores.
        stores_means: whether each partial sum of a weighted mean is stored in the format.
        stores_products: whether each partial sum of the channel product may be stored in the format.
        by_axis: whether the mean over keys is taken along one axis after the other.
        fused: whether scores are inner products of features, and exponentials are rescaled while a maximum grows.
        leaves_out: whether a softmax may leave out keys whose weights are far below the rounding of one product.
    """

    format: str
    exp_ulps: float = EXP_ULPS["softmax"]
    flushes: bool = False
    truncates: bool = False
    stores_means: bool = False
    stores_products: bool = False
    by_axis: bool = False
    fused: bool = False
    leaves_out: bool = False

    def rounding(self, terms: int, added: int = 0) -> RoundingBound:
        """`convolution_bound` of the channel product, which adds up `terms` products and a bias.

        Args:
            added: how many parts of the sum are stored first, and then added in the format of the storage.
        """
        # There are two casts: one of the product, one after the bias. If partial sums may be stored, each store is a
        # cast too. It counts twice because it may truncate.
        casts = 2 + added + (2 * terms if self.stores_products else 0)
        return convolution_bound(
            terms,
            self.format,
            casts=casts,
            stored=casts + added,
            truncating=self.truncates,
            flush_to_zero=self.flushes,
        )

    def __str__(self) -> str:
        kinds = {
            "flushes": "subnormal numbers are flushed",
            "truncates": "sums may truncate",
            "stores_means": "partial sums of means are stored",
            "stores_products": "partial sums of products may be stored",
        }
        sentences = [sentence for name, sentence in kinds.items() if getattr(self, name)]
        return ", ".join([self.format, f"exp within {self.exp_ulps:.3g} ulp", *sentences])


def worst(arithmetics: Iterable[Arithmetic]) -> Arithmetic:
    """An arithmetic whose channel products err at least as much as those of all `arithmetics`, which share a format."""
    every = list(arithmetics)
    # `truncates`, `flushes` and `stores_products` can only enlarge the error of a channel product, so their maximum is
    # safe. The other fields do not enter it, and the maximum of equal format names is that name.
    return Arithmetic(**{field.name: max(getattr(one, field.name) for one in every) for field in fields(Arithmetic)})


@final
class Missing(str):
    """A premise that does not hold, with the claim that needs it: `ROW: every target is a key`."""

    __slots__ = ()


@final
@dataclass(frozen=True)
class ArithmeticPremises:
    """What the claims SOFT, ROW and LEFT require of the arithmetic of a softmax and of the mean by its weights.

    Args:
        maximum_known_before_the_sum: no exponential is rescaled while the maximum grows, as fused kernels do.
        sums_kept_in_the_accumulator: no partial sum of a mean is stored in the format of the layer.
        subnormal_numbers_kept: no subnormal number is flushed to 0.
    """

    maximum_known_before_the_sum: bool
    sums_kept_in_the_accumulator: bool
    subnormal_numbers_kept: bool

    @classmethod
    def of(cls, arithmetic: Arithmetic) -> Self:
        """The premises, as far as `arithmetic` satisfies them."""
        return cls(not arithmetic.fused, not arithmetic.stores_means, not arithmetic.flushes)


@final
@dataclass(frozen=True)
class HeadPremises:
    """What the claims SOFT, ROW and LEFT require of a head.

    In Statements.v they are `reads`, `sharp` and `keys` of `soft_premises`.

    Args:
        keys_are_those_of_a_box: scores are a sum over the axes of a grid, and not a function of a number per key.
        every_target_is_a_key: no query has its target beyond the grid.
        scores_fall_on_both_sides: the centre is within half a pixel of the target.
    """

    keys_are_those_of_a_box: bool
    every_target_is_a_key: bool
    scores_fall_on_both_sides: bool


@final
@dataclass(frozen=True)
class CentredPremises:
    """What claim SOFT requires of a head whose weights are bounded by those of a head centred on a pixel.

    A head centred off a pixel, or with targets beyond the grid, counts as a head centred on a pixel with a smaller
    sharpness. No theorem proves this step for computed weights.
    """

    every_target_is_a_key: bool
    centred_on_a_pixel: bool


def program_claim(arithmetic: Arithmetic) -> str:
    """The claim that proves the bound of `SoftHeads`: LEFT if the softmax may leave out keys, otherwise ROW.

    ROW requires that every exponential is close to that of its score (`off_by_key` of Statements.v), with an absolute
    error of at most about 2^-102. Frozen heads leave out keys beyond an interval of an axis, whose weights may exceed
    this error. LEFT proves that the bound is the same.
    """
    return "LEFT" if arithmetic.leaves_out else "ROW"


def claims_under(premises: Sequence["DataclassInstance"], *claims: str) -> frozenset[str]:
    """`claims` if every premise holds; otherwise `WITHOUT_THEOREM` and one `Missing` per premise that does not hold.

    A `Missing` names the first of `claims`.

    Args:
        premises: instances of dataclasses whose fields are booleans, and whose field names say what must hold.
    """
    # The field's name is the sentence that a report prints, so a premise cannot be renamed in one place alone.
    checks = [check for part in premises for check in asdict(part).items()]
    lacking = {Missing(f"{claims[0]}: {name.replace('_', ' ')}") for name, holds in checks if not holds}
    return frozenset({WITHOUT_THEOREM, *lacking}) if lacking else frozenset(claims)
