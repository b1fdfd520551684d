"""One offline HTML page that shows the attention of a network."""

from conv2attn.lab.explore.captures import captured_layers
from conv2attn.lab.explore.explored_layers import Explored, explored_layers
from conv2attn.lab.explore.exploring import Page, explore, explore_page
from conv2attn.lab.explore.pictures import explored_photo, photo_picture

__all__ = [
    "Explored",
    "Page",
    "captured_layers",
    "explore",
    "explore_page",
    "explored_layers",
    "explored_photo",
    "photo_picture",
]
