"""What Mills et al., "Applying Graph Explanation to Operator Fusion", print: tables I to V, value by value, and the settings of
their figures. Their model of the buffer is not published in full, so that gains compare and sizes do not."""

from __future__ import annotations

from typing import NamedTuple

from fusewise.accel.gnn.data import TABLE, names_for

__all__ = ["BRR_WITHOUT", "NAMES", "PANELS", "RATES", "SAMPLES", "TABLES", "VALIDITY", "Column", "Panel"]

NAMES = {
    "vgg16": "VGG16",
    "squeezenet1_1": "SqueezeNet",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3_small": "MobileNetV3-Small",
    "mobilenet_v3_large": "MobileNetV3-Large",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnet152": "ResNet-152",
    "efficientnet_b0": "EfficientNet-B0",
    "efficientnet_b3": "EfficientNet-B3",
    "deeplabv3_mobilenet_v3_large": "DeepLabV3+MobileNetV3",
}

SAMPLES = TABLE
"""Table I: fusion groups drawn from each network."""

VALIDITY = {"lbdf": (0, 100), "brr": (25, 80)}
"""Figure 3, as far as the text gives it: between which per cents the valid groups of a network lie."""

BRR_WITHOUT = tuple(name for name in TABLE if name not in names_for("brr"))
"""Networks that figure 3 leaves out under BRR, for their squeeze-and-excite blocks."""


class Column(NamedTuple):
    """A column of a table: what is planned, with a buffer of so many KiB, and how many plans each search may evaluate."""

    network: str
    scheme: str
    buffer: int
    plans: int


class Table(NamedTuple):
    """A table: its columns and searches; MB, and kilobytes of the largest group, by search and explainer, where it prints them."""

    columns: tuple[Column, ...]
    searches: tuple[str, ...]
    traffic: dict[tuple[str, str], tuple[float, ...]]
    buffers: dict[tuple[str, str], tuple[float, ...]]


_LARGE = tuple(
    Column(name, "lbdf", 256, 5000) for name in ("efficientnet_b3", "resnet152", "deeplabv3_mobilenet_v3_large")
)
_SMALL = tuple(
    Column(name, scheme, 128, 2000)
    for scheme in ("brr", "lbdf")
    for name in ("mobilenet_v2", "vgg16", "resnet50", "resnet18", "squeezenet1_1")
)

TABLES = {
    "II": Table(
        _LARGE,
        ("local", "nsga2", "random"),
        {
            ("local", "none"): (90.500, 80.733, 116.644),
            ("local", "gnne"): (78.007, 74.461, 114.440),
            ("local", "pg"): (73.569, 76.421, 114.180),
            ("local", "rg"): (78.433, 75.245, 113.942),
            ("nsga2", "none"): (77.334, 77.205, 114.351),
            ("nsga2", "gnne"): (61.265, 68.581, 113.602),
            ("nsga2", "pg"): (61.792, 67.013, 113.840),
            ("nsga2", "rg"): (61.535, 66.621, 113.602),
            ("random", "none"): (172.802, 113.661, 148.153),
            ("random", "gnne"): (169.928, 96.021, 143.925),
            ("random", "pg"): (164.086, 96.413, 142.548),
            ("random", "rg"): (162.774, 94.453, 147.022),
        },
        {
            ("local", "none"): (248.674, 253.750, 252.461),
            ("local", "gnne"): (254.240, 199.875, 252.461),
            ("local", "pg"): (250.361, 213.375, 252.461),
            ("local", "rg"): (254.240, 213.375, 252.461),
            ("nsga2", "none"): (249.236, 253.375, 252.461),
            ("nsga2", "gnne"): (254.248, 199.875, 252.461),
            ("nsga2", "pg"): (254.217, 213.375, 252.461),
            ("nsga2", "rg"): (254.218, 253.375, 252.461),
            ("random", "none"): (251.674, 207.750, 235.156),
            ("random", "gnne"): (249.236, 188.250, 252.461),
            ("random", "pg"): (249.236, 208.750, 252.461),
            ("random", "rg"): (249.236, 213.375, 236.141),
        },
    ),
    "III": Table(
        _SMALL,
        ("local",),
        {
            ("local", "none"): (15.101, 27.606, 83.685, 27.127, 8.202, 9.803, 5.973, 25.764, 5.974, 3.839),
            ("local", "gnne"): (13.401, 27.415, 83.344, 27.127, 6.232, 8.823, 5.973, 24.588, 5.974, 3.585),
            ("local", "pg"): (14.609, 26.975, 83.493, 26.975, 6.790, 9.068, 5.973, 24.588, 5.974, 3.585),
            ("local", "rg"): (13.790, 27.174, 83.317, 27.127, 7.714, 8.823, 5.973, 24.196, 5.974, 3.585),
        },
        {},
    ),
    "IV": Table(
        _SMALL,
        ("random",),
        {
            ("random", "none"): (16.195, 29.274, 91.866, 28.525, 10.249, 13.209, 6.856, 39.092, 6.856, 10.080),
            ("random", "gnne"): (12.593, 28.593, 91.669, 27.919, 8.258, 11.432, 6.268, 35.564, 6.464, 7.948),
            ("random", "pg"): (13.307, 28.124, 91.763, 27.599, 7.817, 13.049, 6.562, 32.820, 6.562, 7.751),
            ("random", "rg"): (12.838, 28.847, 92.376, 28.081, 7.601, 12.890, 6.464, 32.036, 6.464, 7.333),
        },
        {},
    ),
    "V": Table((Column("mobilenet_v2", "lbdf", 128, 2000),), ("local", "random"), {}, {}),
}
"""Table V prints rates instead, of searches that tables III and IV hold, too."""

RATES = {
    ("local", "gnne"): (83.1, 168),
    ("local", "pg"): (59.1, 72),
    ("local", "rg"): (94.0, 99),
    ("random", "gnne"): (72.1, 106),
    ("random", "pg"): (50.7, 32),
    ("random", "rg"): (91.4, 42),
}
"""Table V: rectify rate in per cent, and seconds of the search, on MobileNetV2 under LBDF."""


class Panel(NamedTuple):
    """A panel with curves: traffic of the best plan over the plans that a search may evaluate."""

    title: str
    column: Column
    searches: tuple[str, ...]


PANELS = {
    "5a": Panel("SqueezeNet on BRR using local search", Column("squeezenet1_1", "brr", 128, 4000), ("local",)),
    "5b": Panel("MobileNetV2 on LBDF using local search", Column("mobilenet_v2", "lbdf", 128, 4000), ("local",)),
    "5c": Panel("VGG16 on LBDF using random search", Column("vgg16", "lbdf", 128, 4000), ("random",)),
    "efficientnet": Panel(
        "EfficientNet-B3 on LBDF using local search and NSGA-II", _LARGE[0], ("local", "nsga2", "random")
    ),
    "anytime": Panel(
        "EfficientNet-B3 on LBDF by seconds, the exact search beside", _LARGE[0], ("local", "nsga2", "random")
    ),
}
"""Figure 5, the panel of EfficientNet-B3 that the poster adds (its other two are 5a and 5b), and one by time that is ours."""
