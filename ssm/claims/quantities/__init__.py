"""The quantities: one file each, named after its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.claims.quantity import QUANTITIES, Quantity

QUANTITIES.discover()

if TYPE_CHECKING:
    QuantitySpec = Quantity
else:
    QuantitySpec = Annotated[Union[tuple(QUANTITIES.values())], Field(discriminator="kind")]  # noqa: UP007
