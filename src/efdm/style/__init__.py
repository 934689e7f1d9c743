"""Style transfer: stylize pictures and videos, train networks, and evaluate them."""

from efdm.errors import requires

with requires("style"):
    from efdm.style.look import Look
    from efdm.style.pipeline import transfer
    from efdm.style.stylizer import Stylizer

__all__ = ["Look", "Stylizer", "transfer"]
