"""The systems, one file each. A new one: its spec here, and its module in ssm/models/mixers/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.plugin_modules import check_files
from ssm.specs.mixers.base import SPECS, MixerSpecBase

SPECS.discover()
check_files(SPECS, "ssm.models.mixers")

if TYPE_CHECKING:
    MixerSpec = MixerSpecBase
else:  # a union over what the folder holds
    MixerSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator="kind")]  # noqa: UP007
