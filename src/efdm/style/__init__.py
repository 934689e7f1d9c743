"""Style transfer: stylize pictures and videos, match colours, train networks, and evaluate them."""

from efdm.errors import requires

with requires("style"):
    from efdm.style.color_match import Reference, match_picture, prepare_reference
    from efdm.style.look import Look
    from efdm.style.options import StylizeOptions
    from efdm.style.pipeline import transfer
    from efdm.style.settings import Settings
    from efdm.style.stylizer import Stylizer
    from efdm.style.training import train

__all__ = [
    "Look",
    "Reference",
    "Settings",
    "StylizeOptions",
    "Stylizer",
    "match_picture",
    "prepare_reference",
    "train",
    "transfer",
]
