"""The second half of a block, position by position, that stands beside the mixers of Transformers, GLA and RWKV.

One file each. A new one: its spec here, and its module in ssm/models/ffn/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.plugin_modules import check_files
from ssm.specs.ffn.base import SPECS, FfnSpecBase

SPECS.discover()
check_files(SPECS, "ssm.models.ffn")

if TYPE_CHECKING:
    FfnSpec = FfnSpecBase
else:  # a union over what the folder holds
    FfnSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator="kind")]  # noqa: UP007
