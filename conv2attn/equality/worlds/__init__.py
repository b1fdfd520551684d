"""Are two networks one map but for rounding, section by section; and where do they part?"""

from conv2attn.equality.worlds.one_map import Sections, compare_sections
from conv2attn.equality.worlds.places import PartingPlace
from conv2attn.equality.worlds.units import LIMIT

__all__ = ["LIMIT", "PartingPlace", "Sections", "compare_sections"]
