"""Numbers that name the theorems on which they rest."""

from typing import Self, final

WITHOUT_THEOREM = "steps without a theorem"


@final
class Claimed(float):
    """A bound with the claims of proofs/ on which it rests; `WITHOUT_THEOREM` among them where a step has none.

    Arithmetic on it returns a plain float without claims. Code that combines bounds must unite their claims itself.

    >>> bound = Claimed(2.0, {"FLOAT"})
    >>> sorted(claims_of(bound, Claimed(1.0, {"L2c"}), 3.0))
    ['FLOAT', 'L2c']
    """

    claims: frozenset[str]

    def __new__(cls, value: float, claims: frozenset[str] | set[str] = frozenset()) -> Self:
        """`value`, resting on `claims`."""
        # A float is immutable, so its value is set in `__new__`; `__init__` would come too late.
        number = super().__new__(cls, value)
        number.claims = frozenset(claims)
        return number


def claims_of(*parts: object) -> frozenset[str]:
    """The claims of all parts together. A plain number has none: it was given, not proved."""
    return frozenset[str]().union(*(getattr(part, "claims", ()) for part in parts))
