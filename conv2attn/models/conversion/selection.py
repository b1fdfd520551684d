"""Which convolutions of a network the caller wants converted, by glob patterns of their names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import final

from conv2attn.errors import UsageError


@final
@dataclass(frozen=True)
class Selection:
    """All names (those that fit a pattern of `only`, if there is one), except what fits a pattern of `skip`."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    @staticmethod
    def of(only: str | Sequence[str], skip: str | Sequence[str]) -> "Selection":
        """From one pattern or several."""
        return Selection(*((patterns,) if isinstance(patterns, str) else tuple(patterns) for patterns in (only, skip)))

    def check(self, names: Iterable[str]) -> None:
        """Raises UsageError (C2A008) for a pattern that fits none of `names`."""
        known = list(names)
        for pattern in (*self.only, *self.skip):
            if not any(fnmatchcase(name, pattern) for name in known):
                raise UsageError(
                    "C2A008",
                    f"the pattern {pattern!r} fits no convolution",
                    f"There are: {', '.join(known) or 'none'}.",
                )

    def wants(self, names: Iterable[str]) -> bool:
        """Whether what has all these `names` is to be converted."""
        known = list(names)
        wanted = not self.only or any(fnmatchcase(name, pattern) for name in known for pattern in self.only)
        return wanted and not any(fnmatchcase(name, pattern) for name in known for pattern in self.skip)
