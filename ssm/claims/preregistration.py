"""Preregistrations: what a figure's claims were, and on which seeds, before these seeds were read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from ssm.base.records import Time
from ssm.claims.series import Seeds
from ssm.specs.base import Spec


class Content(Spec):
    """What decides a verdict. Hashes are over what is planned, so that names and wording are no part of it."""

    expected: str  # the region that confirms, such as "> 1.1"
    quantity: str  # hash of the quantity
    arms: str  # hash of the models, recipes, data and steps before of what the quantity reads
    measurements: str  # hash of how the tables that it reads are measured
    seeds: Seeds = ()  # where an arm that it reads has not all of the registration's: those that all its arms have
    judged: bool = True  # False: it is about models that the scale does not have
    ours: bool = False  # an added check: it counts apart from the papers' statements


class Preregistration(Spec):
    """The claims of one figure at one scale with their seeds; or seeds that were read unregistered."""

    date: Time
    seeds: Seeds = ()
    used: str | None = None  # why these seeds can judge nothing here any more
    claims: dict[str, Content] = {}  # by the name of the verdict

    @model_validator(mode="after")
    def _claims_or_used(self) -> Preregistration:
        if bool(self.claims) == (self.used is not None):
            raise ValueError("give either 'claims' or, for seeds that judge nothing, 'used' with the reason")
        return self


class Preregistrations(Spec):
    """config/registered.json: target -> scale -> its preregistrations, oldest first. None is ever removed."""

    figures: dict[str, dict[str, Annotated[tuple[Preregistration, ...], Field(strict=False)]]] = {}

    def of(self, target: str, scale: str) -> tuple[Preregistration, ...]:
        """The preregistrations of one figure at one scale."""
        return self.figures.get(target, {}).get(scale, ())
