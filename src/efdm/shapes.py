"""Tensor shapes as types. They document signatures and are checked at run time if ``EFDM_CHECK_SHAPES`` is set.

Without that variable the names are plain tensors and `checked` does nothing, so torch is the only requirement and compilers
see undecorated functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., object])

if TYPE_CHECKING or not os.environ.get("EFDM_CHECK_SHAPES"):
    Values: TypeAlias = Tensor  # *rows n
    Style: TypeAlias = Tensor  # *rows m
    Resized: TypeAlias = Tensor  # *rows {n}
    Ranks: TypeAlias = Tensor  # *rows n, int32
    Order: TypeAlias = Tensor  # *rows n, int16 or int32
    Features: TypeAlias = Tensor  # *shape
    Partner: TypeAlias = Tensor  # batch, int64
    Weight: TypeAlias = Tensor  # batch
    Matrix: TypeAlias = Tensor  # batch batch, or channels batch batch

    def checked(function: Function) -> Function:
        return function
else:
    from beartype import beartype
    from jaxtyping import Float, Int, Int32, Int64, jaxtyped

    Values = Float[Tensor, "*rows n"]
    Style = Float[Tensor, "*rows m"]
    Resized = Float[Tensor, "*rows {n}"]
    Ranks = Int32[Tensor, "*rows n"]
    Order = Int[Tensor, "*rows n"]
    Features = Float[Tensor, "*shape"]
    Partner = Int64[Tensor, "batch"]
    Weight = Float[Tensor, "batch"]
    Matrix = Float[Tensor, "*channels batch batch"]
    checked = jaxtyped(typechecker=beartype)
