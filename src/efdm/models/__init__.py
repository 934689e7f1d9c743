"""Networks, and what is needed to load other people's. They know nothing of matching."""

from efdm.models.compat import allow_torchvision

__all__ = ["allow_torchvision"]
