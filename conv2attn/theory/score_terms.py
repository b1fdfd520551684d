"""The terms of Eq. (8) of Cordonnier et al. 2020 that a layer's scores have; `qk+qr` is their "learned + content"."""

from dataclasses import dataclass, fields
from typing import final

from conv2attn.errors import UsageError


@final
@dataclass(frozen=True)
class ScoreTerms:
    """A subset of the terms of the score `q.k + q.(W_hat r_delta) + u.k + v.(W_hat r_delta)`.

    The query is `q = W_qry x_q`, the key is `k = W_key x_k`, and r_delta encodes the relative position `delta = k - q`.
    If r_delta is as wide as a key, W_hat is the identity; it is then neither stored nor applied.

    Args:
        qk: queries times keys.
        qr: queries times relative positions.
        uk: a bias vector u per head, times keys.
        vr: a bias vector v per head, times relative positions. With this term alone, attention does not depend on the
            image.
    Source: Cordonnier et al. 2020, Eq. (8); `qk+qr` is Sec. 4.3, all four are Transformer-XL (Dai et al. 2019).
    """

    qk: bool = False
    qr: bool = False
    uk: bool = False
    vr: bool = False

    @staticmethod
    def of(terms: "ScoreTerms | str") -> "ScoreTerms":
        """The terms whose names are joined by "+".

        Raises:
            UsageError: a name is not one of the four, occurs twice, or `terms` is empty (C2A002).
        Examples:
            >>> str(ScoreTerms.of("qr+qk"))
            'qk+qr'
        """
        if isinstance(terms, ScoreTerms):
            return terms
        names = terms.split("+")
        if len(set(names)) < len(names) or not set(names) <= {field.name for field in fields(ScoreTerms)}:
            reason = f"terms={terms!r} is not a sum of qk, qr, uk and vr"
            raise UsageError("C2A002", reason, "Write for example vr, qr, qk+qr or qk+qr+uk+vr.")
        return ScoreTerms(**dict.fromkeys(names, True))

    @property
    def names(self) -> tuple[str, ...]:
        """The terms in the order of Eq. (8)."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name))

    @property
    def read_content(self) -> bool:
        """Whether attention depends on the image."""
        return self.qk or self.qr or self.uk

    @property
    def has_query(self) -> bool:
        """Whether there is a W_qry."""
        return self.qk or self.qr

    @property
    def has_key(self) -> bool:
        """Whether there is a W_key."""
        return self.qk or self.uk

    def __str__(self) -> str:
        return "+".join(self.names)


POSITION_ONLY = ScoreTerms(vr=True)
