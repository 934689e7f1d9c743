"""Style transfer: stylize pictures and videos, train networks, and evaluate them."""

from efdm.errors import requires

with requires("style"):
    from efdm.style.look import Look
    from efdm.style.pipeline import transfer
    from efdm.style.settings import Settings
    from efdm.style.stylizer import Stylizer
    from efdm.style.training import train

__all__ = ["Look", "Settings", "Stylizer", "train", "transfer"]
