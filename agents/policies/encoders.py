"""From observations to what a core reads: one vector, or a set of elements.

An encoder is a Stable-Baselines3 features extractor. One that gives a set, `(batch, num_elements, element_size)`, has
those two sizes as attributes; ``features_dim`` is their product, the width for cores that take only vectors. One whose
``takes_bytes`` is true scales images itself when it gets them as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from torch import Tensor, nn

SMALLEST_NATURE_IMAGE = 36  # NatureCNN's convolutions need at least this many pixels in each direction


class NatureEncoder(NatureCNN):
    """Stable-Baselines3's NatureCNN, computed in channels-last order, which is faster on CPUs and on GPUs."""

    takes_bytes = True

    def __init__(self, observation_space: spaces.Box, features_dim: int = 512, normalized_image: bool = False) -> None:
        observation_space = with_channel(observation_space)
        _check_image(observation_space, SMALLEST_NATURE_IMAGE)
        super().__init__(observation_space, features_dim, normalized_image)

    def forward(self, observations: Tensor) -> Tensor:
        if observations.dim() == 3:  # grey, without an axis for channels
            observations = observations.unsqueeze(1)
        return run_layers(self.linear, convolve(self.cnn, observations))


class SpatialEncoder(BaseFeaturesExtractor):
    """NatureCNN's convolutions, with each position of the last feature map as one element: its channels plus a learned
    embedding of the position, so that RIMs can tell positions apart and attend to them."""

    takes_bytes = True

    def __init__(self, observation_space: spaces.Box, normalized_image: bool = False) -> None:
        _check_image(observation_space, SMALLEST_NATURE_IMAGE)
        nature = NatureCNN(observation_space, 1, normalized_image)
        convolutions = nn.Sequential(*list(nature.cnn)[:-1])  # without the flattening
        with torch.no_grad():
            sample = convolutions(torch.zeros(1, *observation_space.shape))
        self.element_size, self.num_elements = sample.shape[1], sample.shape[2] * sample.shape[3]
        super().__init__(observation_space, self.num_elements * self.element_size)
        self.cnn = convolutions
        self.position = nn.Parameter(0.1 * torch.randn(self.num_elements, self.element_size))

    def forward(self, observations: Tensor) -> Tensor:
        return convolve(self.cnn, observations).flatten(2).transpose(1, 2) + self.position


class DictEncoder(BaseFeaturesExtractor):
    """Each key of a Dict observation becomes one element: an encoder of its own, plus a learned embedding of the key.

    Images large enough for NatureCNN get that, smaller ones (MiniGrid's 7 x 7 grids) a small convolutional encoder,
    codes (see :func:`is_codes`) theirs, and everything else one linear layer.

    Args:
        element_size: width of an element.
        cnn_output_dim: features of each image, as in Stable-Baselines3's CombinedExtractor; one more linear layer makes
            an element of them. Default: they are the element.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        element_size: int = 64,
        cnn_output_dim: int | None = None,
        normalized_image: bool = False,
    ) -> None:
        self.num_elements, self.element_size = len(observation_space.spaces), element_size
        super().__init__(observation_space, self.num_elements * element_size)
        self.encoders = nn.ModuleDict()
        space: Any  # is_codes and is_image_space say which kind it is
        for key, space in observation_space.spaces.items():
            encoder: nn.Module
            if is_codes(space):
                encoder = (CodeGridEncoder if len(space.shape) == 3 else WordsEncoder)(space, element_size)
            elif not is_image_space(space, check_channels=False, normalized_image=normalized_image):
                linear = nn.Linear(get_flattened_obs_dim(space), element_size)
                encoder = nn.Sequential(nn.Flatten(), linear, nn.ReLU())
            else:
                width = cnn_output_dim or element_size
                if min(space.shape[1:]) >= SMALLEST_NATURE_IMAGE:
                    encoder = NatureEncoder(space, width, normalized_image)
                else:
                    encoder = GridEncoder(space, width)
                if cnn_output_dim is not None:
                    encoder = nn.Sequential(encoder, nn.Linear(width, element_size))
            try:
                self.encoders[key] = encoder
            except KeyError as error:  # a key with a dot, or "keys" or "pop"
                raise ValueError(f"observation {key!r} needs another name: {error.args[0]}") from error
        self.key = nn.Parameter(0.1 * torch.randn(self.num_elements, element_size))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        elements = [encoder(observations[key]) for key, encoder in self.encoders.items()]
        return torch.stack(elements, 1) + self.key


class GridEncoder(BaseFeaturesExtractor):
    """Small grids, such as MiniGrid's 7 x 7 view: two 2 x 2 convolutions, then one linear layer."""

    takes_bytes = True

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        observation_space = with_channel(observation_space)
        _check_image(observation_space, 3)
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape
        self.network = nn.Sequential(
            nn.Conv2d(channels, 32, 2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * (height - 2) * (width - 2), features_dim),
            nn.ReLU(),
        )

    def forward(self, observations: Tensor) -> Tensor:
        if observations.dim() == 3:
            observations = observations.unsqueeze(1)
        if observations.dtype == torch.uint8:
            observations = observations / 255
        result: Tensor = self.network(observations)
        return result


def is_codes(space: spaces.Space[Any]) -> bool:
    """Whether observations are small integers that stand for something: bytes, in one or three dimensions, whose upper
    bounds are not 255 as a picture's are. The bounds say how many there are."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (1, 3):
        return False
    return bool((space.low == 0).all() and (space.high < 255).all())


def are_plain_numbers(space: spaces.Space[Any], normalize_images: bool) -> bool:
    """Whether Stable-Baselines3 gives observations to an encoder as they are, in float32: no image that it scales, no
    number that it makes a one-hot vector of."""
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return all(isinstance(part, spaces.Box) and not (normalize_images and is_image_space(part)) for part in parts)


class CodeGridEncoder(GridEncoder):
    """MiniGrid's symbolic view, (width, height, 3): one plane for each object, colour and state, then GridEncoder. A
    board of one code in each cell may also be (width, height)."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        width, height = observation_space.shape[:2]
        sizes = observation_space.high.reshape(width * height, -1).max(0).astype(int) + 1
        super().__init__(spaces.Box(0, 1, (int(sizes.sum()), width, height)), features_dim)
        first = np.concatenate([[0], sizes.cumsum()[:-1]])
        self._first = torch.from_numpy(first)  # plane of each kind of code; no buffer: it is not saved

    def forward(self, observations: Tensor) -> Tensor:
        if observations.dim() == 3:
            observations = observations.unsqueeze(-1)
        first: Any = self.network[0]
        planes = torch.zeros((*observations.shape[:-1], first.in_channels), device=observations.device)
        planes.scatter_(-1, observations.long() + self._first.to(observations.device), 1.0)
        result: Tensor = self.network(planes.permute(0, 3, 1, 2))
        return result


class WordsEncoder(BaseFeaturesExtractor):
    """A mission as numbers of words: an embedding of each word, then one linear layer over all of them. Code 0 is no
    word, and its embedding stays zero."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64, word_size: int = 16) -> None:
        super().__init__(observation_space, features_dim)
        words, length = int(observation_space.high.max()) + 1, observation_space.shape[0]
        self.words = nn.Embedding(words, word_size, padding_idx=0)
        self.linear = nn.Linear(length * word_size, features_dim)

    def forward(self, observations: Tensor) -> Tensor:
        result: Tensor = self.linear(self.words(observations.long()).flatten(1)).relu()
        return result


def image_encoder(space: spaces.Space[Any]) -> type[BaseFeaturesExtractor]:
    """What reads an image, or a grid: by its size, and by whether its numbers stand for something."""
    shape = space.shape or ()
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(shape) in (2, 3):
        if (space.low == 0).all() and (space.high < 255).all():
            return CodeGridEncoder
        if min(shape[-2:]) < SMALLEST_NATURE_IMAGE:
            return GridEncoder
    return NatureEncoder


def with_channel(space: spaces.Box) -> spaces.Box:
    """A grey image of shape (height, width) as one of shape (1, height, width)."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 2:
        return space
    return spaces.Box(space.low[None], space.high[None], dtype=space.dtype.type)


def convolve(layers: Iterable[nn.Module], images: Tensor) -> Tensor:
    """Channels last. Bytes are scaled by 1 / 255 in the weights of the first convolution, which are few: one pass less
    over the images, the largest tensor of an update."""
    if images.dtype != torch.uint8:
        return run_layers(layers, images.contiguous(memory_format=torch.channels_last))
    first, *rest = layers
    assert isinstance(first, nn.Conv2d)
    images = torch.stack(images.unbind(1), -1).permute(0, 3, 1, 2)  # twice as fast as contiguous()
    return run_layers(rest, first._conv_forward(images.to(first.weight.dtype), first.weight / 255, first.bias))


def run_layers(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    """One layer after the other; what a ReLU reads is not needed any more, so it works in place."""
    for layer in layers:
        x = torch.relu_(x) if isinstance(layer, nn.ReLU) else layer(x)
    return x


def _check_image(space: spaces.Space[Any], smallest: int) -> None:
    """Channel-first images of at least ``smallest`` pixels in each direction, or a sentence that says so."""
    shape = space.shape or ()
    if not isinstance(space, spaces.Box) or len(shape) != 3 or min(shape[1:]) < smallest:
        raise ValueError(
            f"the observation must be an image of at least {smallest} x {smallest} pixels, got {space}; "
            "for vectors use MlpRimsPolicy, for Dict observations MultiInputRimsPolicy"
        )
