"""Names from which callers choose, as type checkers and the command line read them: without torch."""

from typing import Literal

EncodingName = Literal["quadratic", "enumerated"]
"""The families of `basis.FAMILIES` that sharpen: a convolution converts into them."""
StrideBy = Literal["queries", "pooling"]
"""How a strided layer skips outputs: fewer queries, or a pooling layer behind."""
