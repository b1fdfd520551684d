"""How an engine computes: the parameters of its error bounds, measured on the device that it runs on."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import final

from conv2attn.theory.bounds.formats import EXP_ULPS
from conv2attn.theory.bounds.sum_rounding import RoundingBound, convolution_bound


@final
@dataclass(frozen=True)
class Arithmetic:
    """How one engine computes in one format on one device, as far as its rounding errors depend on it.

    Args:
        format: of the products, a name in `FORMATS`; tf32 or bf32 where operands in float32 may be cut to them.
        exp_ulps: the largest error of exp in a softmax, in units in the last place of a normal result.
        flushes: whether subnormal products or operands become 0.
        truncates: whether additions may truncate, as on tensor cores.
        stores_means: whether each partial sum of a weighted mean is stored in the format.
        stores_products: whether each partial sum of the channel product may be.
        by_axis: whether the mean is taken along one axis after the other.
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
        """`convolution_bound` of the channel product: so many `terms` and a bias.

        Args:
            added: how many parts of the sum are stored first, and then added in storage.
        """
        # Two casts: one of the product, one after the bias. Where partial sums may be stored, each store is a cast too.
        # It counts twice because it may truncate.
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
        said = [sentence for name, sentence in kinds.items() if getattr(self, name)]
        return ", ".join([self.format, f"exp within {self.exp_ulps:.3g} ulp", *said])


def worst(arithmetics: Iterable[Arithmetic]) -> Arithmetic:
    """One arithmetic whose channel products err at least as much as those of every given one; all share a format."""
    every = list(arithmetics)
    # `truncates`, `flushes` and `stores_products` can only enlarge the error of a channel product, so their maximum is
    # safe. The other fields do not enter it, and the maximum of equal format names is that name.
    return Arithmetic(**{field.name: max(getattr(each, field.name) for each in every) for field in fields(Arithmetic)})
