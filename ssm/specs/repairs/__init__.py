"""Repairs without training, one file each: what is done to a trained model, or to how it is read.

A new one: its spec here, and its function in ssm/models/repairs/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.plugin_modules import check_files
from ssm.specs.repairs.base import SPECS, Repair

SPECS.discover()
check_files(SPECS, "ssm.models.repairs")

if TYPE_CHECKING:
    RepairSpec = Repair
else:  # a union over what the folder holds
    RepairSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator="kind")]  # noqa: UP007
