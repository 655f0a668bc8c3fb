"""VGG16, ResNet50 and VGG19 as layers, with the shapes that TopoOpt's scripts give the first two.

A layer is its weights, with a bias each, and the ReLU after it. VGG16 has images of 229 x 229 pixels, pads by
2 and pools 3 x 3 without padding, so its first dense layer is twice as large as the textbook's. ResNet50 has
the same images, no batch norm and 10 classes. VGG19 is the textbook's: 224 x 224, padding 1, pools of 2 x 2.

References
----------
K. Simonyan and A. Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015.
K. He et al., "Deep residual learning for image recognition", CVPR 2016. FlexFlow's examples for the shapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from traffic.models.layered import Layer
from traffic.models.topoopt_times import Duration, Listing, Times, in_proportion_s

RESNET50_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels inside a block, how many blocks, and the stride of the first."""
UNTIMED: Duration = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Image:
    """What is between two layers."""

    channels: int
    side: int
    """Its height and its width [pixels]."""

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return self.channels * self.side**2

    def through(self, kernel: int, stride: int, padding: int) -> "Image":
        """Return what a pool makes of it, or a convolution to as many channels."""
        return replace(self, side=(self.side + 2 * padding - kernel) // stride + 1)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of an image."""

    image: Image
    channels: int
    """Those that it makes."""
    kernel: int
    stride: int = 1
    padding: int = 0

    @property
    def out(self) -> Image:
        """The image that it makes."""
        return replace(self.image.through(self.kernel, self.stride, self.padding), channels=self.channels)

    @property
    def weights(self) -> int:
        """Those of a channel, without its bias."""
        return self.kernel**2 * self.image.channels

    @property
    def products(self) -> int:
        """Multiplications for a sample."""
        return self.weights * self.out.numbers

    def list_in(
        self, listing: Listing, name: str, takes_s: Duration = UNTIMED, *, inputs: Sequence[str] | None = None
    ) -> str:
        """List it as a layer and return its name."""
        parameters = (self.weights + 1) * self.channels
        return listing.add(
            name, "conv", takes_s, features=self.out.numbers, parameters=parameters, inputs=inputs
        )


@dataclass(frozen=True, slots=True)
class Vgg:
    """The shape of a VGG."""

    convolutions: tuple[int, int, int, int, int]
    """How many before each pool; they have 64, 128, 256, 512 and 512 channels."""
    side: int
    """Of its images [pixels]."""
    padding: int
    """Of its convolutions [pixels]."""
    pool: int
    """Side of what a pool, of stride 2, takes [pixels]."""

    def blocks(self) -> list[list[Convolution]]:
        """Return the convolutions before each pool."""
        image, blocks = Image(3, self.side), []
        for channels, count in zip((64, 128, 256, 512, 512), self.convolutions, strict=True):
            block = list[Convolution]()
            for _ in range(count):
                block.append(Convolution(image, channels, 3, padding=self.padding))
                image = block[-1].out
            blocks.append(block)
            image = image.through(self.pool, 2, 0)
        return blocks

    def layers(self, times: Times, conv_s: Callable[[Convolution], Duration]) -> list[Layer]:
        """Return its layers: ``conv_s`` says what a convolution takes, ``times`` the others [s]."""
        listing = Listing(times)
        for number, block in enumerate(self.blocks(), start=1):
            for place, conv in enumerate(block, start=1):
                conv.list_in(listing, f"conv {number}.{place}", conv_s(conv))
            pooled = block[-1].out.through(self.pool, 2, 0)
            listing.add(f"pool {number}", "pool", times.conv("pool"), features=pooled.numbers)
        for number, outputs in enumerate((4096, 4096, 1000), start=1):
            listing.dense(f"dense {number}", listing.layers[-1].features, outputs)
        return listing.layers


VGG16 = Vgg((2, 2, 3, 3, 3), side=229, padding=2, pool=3)
VGG19 = Vgg((2, 2, 4, 4, 4), side=224, padding=1, pool=2)


def vgg16(times: Times) -> list[Layer]:
    """Return VGG16 as the scripts have it."""
    return VGG16.layers(times, lambda conv: times.conv(f"conv-{conv.channels}"))


def vgg19(times: Times) -> list[Layer]:
    """Return the textbook's VGG19: times are those of VGG16, of convolutions by FLOP."""
    known = Times(times.batch, times.samples, in_proportion_s("vgg16", times.batch))
    measured = [layer for layer in vgg16(known) if layer.kind == "conv"]
    share = _shares(measured, sum(conv.products for block in VGG16.blocks() for conv in block))
    return VGG19.layers(known, lambda conv: share(conv.products))


def resnet50(times: Times) -> list[Layer]:
    """Return ResNet50, whose time is shared by FLOP among convolutions and the dense layer."""
    listing, products = Listing(times), dict[str, int]()
    first = Convolution(Image(3, 229), 64, 7, stride=2, padding=3)
    products[first.list_in(listing, "conv", inputs=())] = first.products
    image = first.out.through(3, 2, 1)
    listing.add("first pool", "pool", UNTIMED, features=image.numbers)
    for stage, (channels, blocks, stride) in enumerate(RESNET50_STAGES, start=1):
        for block in range(1, blocks + 1):
            convolutions = _bottleneck(image, channels, stride if block == 1 else 1)
            _list_block(listing, f"block {stage}.{block}", convolutions, products)
            image = convolutions[2].out
    image = image.through(7, 1, 0)
    listing.add("last pool", "pool", UNTIMED, features=image.numbers)
    products["dense"] = image.numbers * 10
    listing.add("dense", "dense", UNTIMED, features=10, parameters=products["dense"] + 10)
    total = Layer("all", "conv", 0, 0, *times.conv("all"))
    share = _shares([total], sum(products.values()))
    return [_lasting(layer, share(products.get(layer.name, 0))) for layer in listing.layers]


def _bottleneck(image: Image, channels: int, stride: int) -> list[Convolution]:
    """Return the three convolutions of a block, and that of its shortcut where shapes differ."""
    inner = Convolution(image, channels, 1)
    middle = Convolution(inner.out, channels, 3, stride, 1)
    outer = Convolution(middle.out, 4 * channels, 1)
    is_same = stride == 1 and image.channels == 4 * channels
    return [inner, middle, outer, *[Convolution(image, 4 * channels, 1, stride)] * (not is_same)]


def _list_block(
    listing: Listing, name: str, convolutions: Sequence[Convolution], products: dict[str, int]
) -> None:
    """List a block whose input is the layer listed last, and note the products of its convolutions."""
    before = listing.layers[-1].name
    names = [f"{name} conv {number + 1}" for number in range(len(convolutions))]
    for conv, own, is_first in zip(convolutions, names, (True, False, False, True), strict=False):
        conv.list_in(listing, own, inputs=(before,) if is_first else None)
        products[own] = conv.products
    added = (names[2], names[3] if len(names) > 3 else before)
    listing.add(f"{name} add", "add", UNTIMED, features=convolutions[2].out.numbers, inputs=added)


def _shares(measured: Sequence[Layer], products: int) -> Callable[[int], Duration]:
    """Return what gives the share of some products in what was measured of all [s]."""
    forward_s = sum(layer.forward_s for layer in measured) / products
    backward_s = sum(layer.backward_s for layer in measured) / products
    return lambda own: (own * forward_s, own * backward_s)


def _lasting(layer: Layer, takes_s: Duration) -> Layer:
    return replace(layer, forward_s=takes_s[0], backward_s=takes_s[1])
