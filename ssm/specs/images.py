"""Labeled images: the digits of scikit-learn, or the user's files of CIFAR-10."""

from __future__ import annotations

from abc import ABC
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.base import Spec


class Images(Spec, ABC):
    """Images of one size with one class each."""

    kind: str  # the data set
    pixels: ClassVar[int]  # in an image, read row by row
    channels: ClassVar[int]  # C: numbers in a pixel
    highest: ClassVar[int]  # largest value of such a number; the smallest is 0
    training: ClassVar[int]  # number of training images
    tests: ClassVar[int]  # number of test images
    classes: ClassVar[tuple[str, ...]]
    mean: ClassVar[tuple[float, ...]]  # (C,) over the training images, of numbers divided by `highest`
    deviation: ClassVar[tuple[float, ...]]  # (C,) standard deviation, likewise

    @property
    def files(self) -> tuple[str, ...]:
        """Files and folders of the user with the images."""
        return ()


class Digits(Images):
    """The digits of scikit-learn: 1,797 handwritten digits, 8 x 8 pixels, 17 grays (UCI; Alpaydin & Kaynak 1998)."""

    kind: Literal["digits"] = "digits"  # the data set
    pixels: ClassVar[int] = 64
    channels: ClassVar[int] = 1
    highest: ClassVar[int] = 16
    training: ClassVar[int] = 1297
    tests: ClassVar[int] = 500
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    mean: ClassVar[tuple[float, ...]] = (0.306,)
    deviation: ClassVar[tuple[float, ...]] = (0.376,)
    held_out_seed: int = 1234  # chooses the 500 test images, because the package orders images by writer


class Cifar10(Images):
    """CIFAR-10 (Krizhevsky 2009): 50,000 training images and 10,000 test images in color, 32 x 32 pixels."""

    kind: Literal["cifar10"] = "cifar10"  # the data set
    pixels: ClassVar[int] = 1024
    channels: ClassVar[int] = 3
    highest: ClassVar[int] = 255
    training: ClassVar[int] = 50_000
    tests: ClassVar[int] = 10_000
    classes: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    deviation: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)
    # Folder with the Parquet files of the hub (train-*.parquet, test-*.parquet) or the files of the binary archive
    # (data_batch_1.bin ...), at any depth. The Python archive is a pickle, which ssm never opens.
    folder: Annotated[str, Field(min_length=1)]

    @property
    def files(self) -> tuple[str, ...]:
        return (self.folder,)


ImagesSpec = Annotated[Digits | Cifar10, Field(discriminator="kind")]
