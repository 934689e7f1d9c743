"""Style transfer: networks run with matching, trained and measured."""

from efdm.errors import requires

with requires("style"):
    from efdm.style.look import Look
    from efdm.style.stylizer import Stylizer
    from efdm.style.transfer import transfer

__all__ = ["Look", "Stylizer", "transfer"]
