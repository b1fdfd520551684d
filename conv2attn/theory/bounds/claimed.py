"""Numbers that name the theorems on which they rest."""

from typing import Self, final

WITHOUT_THEOREM = "steps without a theorem"


@final
class Claimed(float):
    """A bound with the claims of proofs/ on which it rests; `WITHOUT_THEOREM` among them where a step has none.

    Arithmetic on it gives a plain float, which names nothing: whoever combines bounds unites their claims.

    >>> bound = Claimed(2.0, {"FLOAT"})
    >>> sorted(claims_of(bound, Claimed(1.0, {"L2c"}), 3.0))
    ['FLOAT', 'L2c']
    """

    claims: frozenset[str]

    def __new__(cls, value: float, claims: frozenset[str] | set[str] = frozenset()) -> Self:
        """`value`, resting on `claims`."""
        number = super().__new__(cls, value)
        number.claims = frozenset(claims)
        return number


def claims_of(*parts: object) -> frozenset[str]:
    """The claims of all parts together; plain numbers are given, not proved, and have none."""
    return frozenset[str]().union(*(getattr(part, "claims", ()) for part in parts))
