"""The spec of attention maps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import SeriesDrawing, insist_on_arms
from ssm.specs.families import Member


class AttentionMaps(SeriesDrawing):
    """The maps of a seed's layers side by side, a panel an arm and layer, each row of a map scaled to a sum of 1."""

    reads: ClassVar[tuple[str, ...]] = ("attention_map",)
    kind: Literal["attention_maps"] = "attention_maps"
    # arms, or families; None: all
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None
    # 1, 2, ...; None: all that were measured
    layers: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct] | None = None

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("arms", self.arms or (), arms, families)
