"""Which views are made of a picture: plain settings, without torch, for recipes and flags."""

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from wessl.errors import UserError

Interpolation = Literal["bicubic", "bilinear"]
Outside = Literal["edge", "corners"]
Role = Literal["global", "local", "target"]


@dataclass(frozen=True)
class Photometric:
    """Changes of colour and sharpness, in DINO's order: jitter, grey, blur, solarise.

    Saturation, hue and grey mix colours, so they are left out for pictures that do not have three
    channels. Brightness, contrast, blur and solarise apply to any number of channels.

    >>> only_brightness = Photometric(jitter=1.0, contrast=0, saturation=0, hue=0, grey=0, blur=0)
    """

    jitter: float = 0.8
    """Probability of the colour jitter: the next four, in a random order."""
    brightness: float = 0.4
    """Brightness factor, drawn from 1 - this to 1 + this."""
    contrast: float = 0.4
    """Contrast factor around the picture's mean grey, drawn from 1 - this to 1 + this."""
    saturation: float = 0.2
    """Saturation factor, drawn from 1 - this to 1 + this."""
    hue: float = 0.1
    """Largest rotation of the hue, in turns either way (at most 0.5)."""
    grey: float = 0.2
    """Probability of turning the picture grey."""
    blur: float = 0.5
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's standard deviation, in pixels of the view."""
    solarise: float = 0.0
    """Probability of inverting all values of 128/255 and above."""

    def __post_init__(self) -> None:
        for name in ("jitter", "grey", "blur", "solarise"):
            _check(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        for name in ("brightness", "contrast", "saturation"):
            _check(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        _check(0 <= self.hue <= 0.5, "hue", self.hue, "between 0 and 0.5")
        low, high = self.blur_sigma
        _check(0 < low <= high, "blur-sigma", self.blur_sigma, "two positive numbers, low to high")

    @classmethod
    def off(cls) -> "Photometric":
        """No photometric change at all."""
        return cls(jitter=0.0, grey=0.0, blur=0.0, solarise=0.0)


@dataclass(frozen=True)
class Crop:
    """One kind of view, made ``count`` times: a window of the picture, resized to a square.

    With ``area`` at most 1 and neither rotation nor shear, the window is torchvision's
    RandomResizedCrop. Otherwise it has real-valued edges and may be larger than the picture or
    turned over its border. What lies outside then repeats the nearest edge of the picture: a
    black border would be a shape of its own that tells the view's scale and angle. For drawings
    whose strokes touch the border, which would be drawn out, take the colour of the corners.

    >>> Crop(size=96, count=10, area=(0.08, 0.25), role="local").affine
    False
    """

    size: int
    """Side of the view in pixels."""
    count: int
    """How many views of this kind."""
    area: tuple[float, float]
    """Range of the window's area as a share of the picture's; above 1 it exceeds the picture."""
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the window's width / height, drawn log-uniformly."""
    flip: float = 0.5
    """Probability of mirroring left and right; 0 for pictures where the side matters."""
    interpolation: Interpolation = "bicubic"
    """Resampling filter; antialiased either way."""
    rotation: float = 0.0
    """Largest rotation in degrees, either way."""
    shear: float = 0.0
    """Largest slant either way: how far a row shifts sideways per row of height."""
    outside: Outside = "edge"
    """What lies beyond the picture: its nearest edge, or the middle colour of its corners."""
    role: Role = "global"
    """Who sees it: global, teacher and student; local, the student; target, the teacher."""
    photometric: Photometric = field(default_factory=Photometric)
    """Changes of colour and sharpness after the crop."""

    def __post_init__(self) -> None:
        _check(self.size >= 1, "size", self.size, "1 or more")
        _check(self.count >= 1, "count", self.count, "1 or more")
        for name in ("area", "aspect"):
            low, high = getattr(self, name)
            _check(0 < low <= high, name, (low, high), "two positive numbers, low to high")
        _check(0 <= self.flip <= 1, "flip", self.flip, "between 0 and 1")
        _check(0 <= self.rotation <= 180, "rotation", self.rotation, "between 0 and 180")
        _check(0 <= self.shear <= 1, "shear", self.shear, "between 0 and 1")
        choices = ("bicubic", "bilinear")
        _check(self.interpolation in choices, "interpolation", self.interpolation, f"in {choices}")
        outsides = ("edge", "corners")
        _check(self.outside in outsides, "outside", self.outside, f"in {outsides}")
        roles = ("global", "local", "target")
        _check(self.role in roles, "role", self.role, f"in {roles}")

    @property
    def affine(self) -> bool:
        """Whether views are turned or slanted, which costs a second resampling."""
        return self.rotation > 0 or self.shear > 0

    @property
    def inside(self) -> bool:
        """Whether the window is a plain rectangle of whole pixels inside the picture."""
        return not self.affine and self.area[1] <= 1


@dataclass(frozen=True)
class Views:
    """All views of a picture, in order: those the teacher sees come first, as the loss wants."""

    crops: tuple[Crop, ...]
    """The kinds of view."""

    def __post_init__(self) -> None:
        _check(len(self.crops) > 0, "crops", self.crops, "at least one kind of view")
        student_only = [crop.role == "local" for crop in self.crops]
        _check(
            student_only == sorted(student_only) and not student_only[0],
            "crops",
            tuple(crop.role for crop in self.crops),
            "ordered so that the teacher's (global, target) come before the local ones",
        )

    @property
    def count(self) -> int:
        """Number of views of one picture.

        >>> dino_views(local_count=10).count
        12
        """
        return sum(crop.count for crop in self.crops)

    @property
    def taught(self) -> int:
        """How many of them the teacher sees.

        >>> dino_views(local_count=10).taught
        2
        """
        return sum(crop.count for crop in self.crops if crop.role != "local")

    @property
    def tensors(self) -> tuple[tuple[int, Role, tuple[int, ...]], ...]:
        """Neighbours of one size and role make one tensor: these, and the views of each kind in it.

        >>> dino_views(local_count=6).tensors
        ((224, 'global', (1, 1)), (96, 'local', (6,)))
        """
        alike = groupby(self.crops, lambda crop: (crop.size, crop.role))
        return tuple((*which, tuple(crop.count for crop in crops)) for which, crops in alike)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role of each view, in order.

        >>> dino_views(local_count=2).roles
        ('global', 'global', 'local', 'local')
        """
        return tuple(crop.role for crop in self.crops for _ in range(crop.count))


def dino_views(
    global_size: int = 224,
    local_size: int = 96,
    local_count: int = 10,
    global_area: tuple[float, float] = (0.25, 1.0),
    local_area: tuple[float, float] = (0.08, 0.25),
    blur_sigma: tuple[float, float] = (0.1, 2.0),
) -> Views:
    """The paper's views: two global crops with different blur and solarise, and local ones.

    ``local_count=0`` leaves the local crops out. The original DINO's local area is (0.05, 0.25).
    """
    plain = Photometric(blur_sigma=blur_sigma)
    first = Crop(global_size, 1, global_area, photometric=replace(plain, blur=1.0))
    second = replace(first, photometric=replace(plain, blur=0.1, solarise=0.2))
    if local_count == 0:
        return Views((first, second))
    local = Crop(local_size, local_count, local_area, role="local", photometric=plain)
    return Views((first, second, local))


def msn_views(
    global_size: int = 224,
    local_size: int = 96,
    local_count: int = 10,
    blur_sigma: tuple[float, float] = (0.1, 2.0),
) -> Views:
    """Original MSN's: a target the teacher alone sees, then the student's anchors.

    The first anchor is as large as the target (the one MSN masks), the others are small. If they
    are not, they are masked too: MSN's code masks the first anchors of one size, however many.
    """
    photometric = Photometric(saturation=0.4, blur_sigma=blur_sigma)

    def crop(size: int, count: int, area: tuple[float, float], role: Role) -> Crop:
        return Crop(size, count, area, interpolation="bilinear", role=role, photometric=photometric)

    target = crop(global_size, 1, (0.3, 1.0), "target")
    anchor = crop(global_size, 1, (0.3, 1.0), "local")
    if local_count == 0:
        return Views((target, anchor))
    return Views((target, anchor, crop(local_size, local_count, (0.05, 0.3), "local")))


def drawing_views(size: int = 16, count: int = 2, outside: Outside = "corners") -> Views:
    """For small drawings, where a local crop shows a stroke that could belong to anything.

    Global views only: turned, slanted, scaled beyond the picture, of another brightness, and
    never mirrored.
    """
    crop = Crop(
        size,
        count,
        area=(0.6, 1.3),
        flip=0.0,
        rotation=20.0,
        shear=0.3,
        outside=outside,
        photometric=Photometric(jitter=1.0, contrast=0, saturation=0, hue=0, grey=0, blur=0),
    )
    return Views((crop,))


def _check(holds: bool, name: str, found: object, wanted: str) -> None:
    if not holds:
        raise UserError(f"views: {name} must be {wanted}, got {found}")
