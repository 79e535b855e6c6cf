"""Where labelled images come from: small real ones that a package brings along, or the files that people have."""

from __future__ import annotations

from abc import ABC
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.base import Spec


class Images(Spec, ABC):
    """Images of one size, each of one class. `mean` and `deviation` are those of the training images, by channel."""

    kind: str
    pixels: ClassVar[int]  # of an image: its rows, one behind another
    channels: ClassVar[int]  # C: numbers of a pixel
    highest: ClassVar[int]  # that such a number can be, from 0 on
    training: ClassVar[int]  # images that there are to train on
    classes: ClassVar[tuple[str, ...]]
    mean: ClassVar[tuple[float, ...]]  # (C,) of numbers over `highest`
    deviation: ClassVar[tuple[float, ...]]  # (C,)

    @property
    def files(self) -> tuple[str, ...]:
        """The user's files that they are read from."""
        return ()


class Digits(Images):
    """scikit-learn's digits: 1,797 handwritten ones of 8 x 8 pixels and 17 greys (UCI; Alpaydin & Kaynak 1998)."""

    kind: Literal["digits"] = "digits"
    pixels: ClassVar[int] = 64
    channels: ClassVar[int] = 1
    highest: ClassVar[int] = 16
    training: ClassVar[int] = 1297
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    mean: ClassVar[tuple[float, ...]] = (0.306,)
    deviation: ClassVar[tuple[float, ...]] = (0.376,)
    held_out_seed: int = 1234  # which 500 of them are test images: the package's own order is by writers


class Cifar10(Images):
    """CIFAR-10 (Krizhevsky 2009): 60,000 colour images of 32 x 32 pixels, of which 10,000 are test images.

    `folder` holds the hub's Parquet files (train-*.parquet, test-*.parquet) or the binary archive's (data_batch_1.bin
    ...), at any depth. The classic archive is a pickle, which is never opened.
    """

    kind: Literal["cifar10"] = "cifar10"
    pixels: ClassVar[int] = 1024
    channels: ClassVar[int] = 3
    highest: ClassVar[int] = 255
    training: ClassVar[int] = 50_000
    classes: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    deviation: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)
    folder: Annotated[str, Field(min_length=1)]

    @property
    def files(self) -> tuple[str, ...]:
        return (self.folder,)


ImagesSpec = Annotated[Digits | Cifar10, Field(discriminator="kind")]
