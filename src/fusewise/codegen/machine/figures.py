"""Numbers that were found by timing: what schedules go by, beside what a machine says of itself.

A figure stands here alone, with what was measured, and names what it was tried on: models of the zoo, of one sample or as
`resnet50*16` says, or operators with a row in `benchmarks/operators`. The command

    python -m benchmarks.figures tile.load

compiles these with other values of it, and says what that does on the processor at hand. What follows from an algorithm, a format
or the hardware's own numbers is no figure, and stands where it is used; so do bounds of rounding errors.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeVar

from fusewise.records import record

__all__ = [
    "SUBJECTS",
    "CacheFigures",
    "IntegerFigures",
    "MeasuredFigures",
    "OverheadFigures",
    "PrefetchFigures",
    "SampleFigures",
    "SharingFigures",
    "StrassenFigures",
    "StrassenSums",
    "TileFigures",
    "WayFigures",
    "WinogradFigures",
]

T = TypeVar("T")

SUBJECTS = "subjects"
"""Under which a field's metadata names what the figure was tried on."""


def figure(value: T, *subjects: str) -> T:
    """A field of this value, tried on these subjects."""
    found: T = field(default=value, metadata={SUBJECTS: subjects})
    return found


@record(frozen=True)
class TileFigures:
    """What a step of a register tile takes (`codegen.families.product.tiles`), in cycles or in parts of them."""

    load: float = figure(0.6, "resnet50")
    """Cycles that a load, or a scalar load into all lanes, takes of a core's throughput; a little above one half."""

    odd: float = figure(0.25, "resnet50")
    """Cycles lost where an odd number of multiply-adds is shared by two pipes."""

    tight: float = figure(1.01, "resnet50")
    """How many times as long a step of a tile takes that needs nearly every register, and is scheduled worse."""

    run: int = figure(32, "mobilenet_v2")
    """Cycles that a tile takes at least for each of its rows when results do not fit the second cache level and other tiles
    write the rest of the row. Measured, of 16 to 96 channels, as twice that on a machine of one multiply-add in a cycle; half of
    it for two is a guess, and so is why: that memory is fetched ahead of writing only along a row."""

    narrow: float = figure(1.08, "resnet18")
    """How much longer a tile is taken to last with vectors of half the width, where they multiply as fast: it has more
    instructions. Measured without columns to save: 10 to 17 % for tiles of one whole vector, up to 2 % for wider ones."""

    slim: float = figure(1.02, "resnet18")
    """How many times as long as its multiply-adds a step of a slim tile takes, whatever its rows: 420 x 128 x 256 in halves of
    210 rows by tiles of 5, 6, 7 and 10 took 229 to 233 us."""

    near_rows: tuple[int, ...] = figure((7, 8), "resnet18")
    """Rows of slim tiles of products in general that do better by them: of whole tiles, with operands and results that stay in
    the second level. In ten models such steps took 1.02 to 1.06 times less; with tiles of 5 rows 1.02 times more, of 9 and 10
    that do not divide a row of pixels 1.1 to 1.4, from beyond the second level 1.01 to 1.03. Not of attention's, which write
    nothing: MobileBERT's took 1.04 times more."""

    pairs: float = figure(1.35, "bert_base:bfloat16")
    """How many times as long a step of pairs of bfloat16 takes with tiles of one vector, whose instruction has its scalar from
    memory, where a single one begins in a cycle: of 128 x 768 x 768 tiles of 8, 10, 12 and 16 rows by one take 870 to 910 us, of 4
    to 12 by two to four 648 to 670."""

    near_depth: int = figure(64, "resnet50")
    """The least depth of these: over 32 steps they took up to 1.4 times more."""


@record(frozen=True)
class OverheadFigures:
    """Cycles that a core loses beside its multiply-adds; they differ by processor (`codegen.machine.processors`)."""

    load: float = figure(0.05, "resnet50")
    """For each load."""

    line: float = figure(0.06, "resnet50")
    """For each cache line of a panel that comes from the second level."""

    finish: float = figure(16.0, "resnet50")
    """For each accumulator past half of the registers at the end of a tile, which the next one cannot overlap."""

    fourth: float = figure(0.0, "resnet50")
    """For each line of a panel from the second level beyond three at a step."""


@record(frozen=True)
class SharingFigures:
    """How work is cut and dealt out to workers."""

    units: int = figure(32, "Conv", "resnet50")
    """Pieces of work to aim for, so that any usual number of workers is balanced."""

    piece_cycles: int = figure(4000, "resnet50")
    """Cycles that a piece of a worker's run takes at least: to claim one and to begin with it takes 100 to 500."""

    columns: int = figure(2, "resnet18")
    """How many times the bytes of rows and results those of the right operand are for workers to share out columns. They then
    read rows that others have written, and the next operator results that others have; a right operand only has to be read by
    more of them. It matters most among cores without a common third level."""

    tiles: int = figure(8, "resnet50")
    """Tiles of a block, and so those that share a panel, are not made fewer than this for the sake of balance: a panel from the
    third level is fetched while the tiles before work, which fewer of them leave no time for. Tiles are dealt out one by one
    where there are two blocks or more."""

    least_tiles: int = figure(4, "resnet50")
    """Tiles that share a panel for it to be worth fetching ahead, or its reduction to be done in chunks: with fewer, memory is
    the limit and the processor's own fetching does as well."""

    @property
    def shared_by_rows(self) -> int:
        """Most channels to a pixel of a map for its rows, not its channels, to be shared out among workers: a 1x1 convolution
        from C / 6 channels to C, the usual expansion, has `columns` times as many weights as inputs and outputs together, so
        that its columns are shared out, where C is so many times the pixels."""
        return 7 * self.columns


@record(frozen=True)
class CacheFigures:
    """What stays in a cache level beside other things."""

    part: int = figure(4, "resnet18")
    """One over the part of the second level that fills while as much is read and written beside it: a strip of two steps, the
    inputs' products of a recurrence, weights that a step has fetched for it. Where every step fetched the next one's, BERT-base,
    with 2.3 MB of weights or more to a step, was 1 % slower."""

    rows: int = figure(8, "resnet18")
    """One over the part of the second level from which on a left operand is large: a tile's rows are fetched by the tile before."""

    near_bytes: int = figure(512 * 1024, "resnet18")
    """Bytes of a panel from which on a reduction is done in chunks however large the second level is; and up to which a tensor
    is taken to be there still when a later step reads it: of the steps that add a residual those gain by fetching it whose
    residual has 0.6 MB or more."""

    far_row: int = figure(1024, "MatMul")
    """Rows of an operand used in place that lie farther apart than this, in bytes, soon crowd each other out of the first level."""


@record(frozen=True)
class PrefetchFigures:
    """Weights that are fetched for later steps (`codegen.steps.prefetch`)."""

    rate: int = figure(4, "resnet18")
    """Bytes of weights that memory gives a core in a cycle: on a Zen 4, 3 measured beside products, 4 to 5 with nothing else to
    do."""

    horizon: int = figure(2_000_000, "resnet50")
    """Cycles of one core, as estimated, from a step to what it fetches: on a shared machine others empty the third cache level
    within a millisecond."""

    least_bytes: int = figure(256 * 1024, "mobilenet_v3_small")
    """Fewer are not worth a kernel of its own: with 64 KB, MobileNetV3-Small had twenty more and nothing from it."""

    wait: float = figure(1.5, "resnet50", "mobilenet_v1_ssd")
    """How many times as long as multiplying a step takes to read its weights for it to wait for them; chosen."""


@record(frozen=True)
class SampleFigures:
    """Which steps run sample by sample (`codegen.steps.samples`): cycles of a core, or of all workers, by the byte."""

    near: float = figure(0.05, "resnet50*16")
    """Of a map, where it fills more than half of the second cache levels. Also what part of its time a direct convolution loses
    where shares are smaller, a tenth of one by Winograd's algorithm."""

    middle: float = figure(0.2, "resnet50*16")
    """Where the maps of all samples fill an eighth of the third level, or that of one a quarter, since other maps are in
    between."""

    far: float = figure(0.3, "resnet50*16")
    """Where they fill half of it, or three quarters: not beside dense convolutions of several taps, which have enough to compute
    meanwhile. Also of filters that may be transformed anew."""

    weight: float = figure(0.17, "resnet50*16")
    """Of weights that are read once more."""

    step: int = figure(14_000, "resnet50*16")
    """Cycles of all workers to begin a step and to wait for the last of them."""


@record(frozen=True)
class WayFigures:
    """From where on one way to run a task does better than another."""

    scaled_pixels: int = figure(4, "efficientnet_b0")
    """Pixels for each output channel from which on there is less to multiply among the weights of a convolution of a scaled map
    than in the map, though every worker does it for itself."""

    shared_weights: int = figure(64 * 1024, "LSTM")
    """Bytes of one direction's R for every worker whenever they meet, from which on workers share it out: they meet after every
    product with a state. Two on a Zen 4 took 0.26 ms for 100 steps of an LSTM of 128 hidden numbers where one took 0.41, and
    0.16 for an LSTM of 64 either way. On a virtual machine to meet took a microsecond more at other times: those 100 steps then
    took 0.40 ms, and as many of a GRU that meets twice in each 0.45, where one worker takes 0.33."""


@record(frozen=True)
class IntegerFigures:
    """Products and convolutions of 8-bit integers (`codegen.families.product.bytes`)."""

    tile: int = figure(40, "mobilenet_v2:int8")
    """Cycles that a tile takes besides its steps and its ends."""

    finish: int = figure(12, "mobilenet_v2:int8")
    """Cycles that requantising one vector of sums takes, or two or four that are neighbours."""

    load: float = figure(0.2, "mobilenet_v2:int8")
    """Cycles that a load takes beside the products."""

    tight: float = figure(1.04, "mobilenet_v2:int8")
    """How many times as long a step takes of a tile that needs nearly every register."""


@record(frozen=True)
class WinogradFigures:
    """What Winograd's forms of a convolution are estimated to take (`codegen.families.winograd.choice`), in cycles of a core."""

    direct: float = figure(0.87, "resnet50")
    """Share of a core's multiply-adds that the direct form reaches; on pairs, of twice as many."""

    product: float = figure(0.85, "resnet50")
    """Share of them that the products here reach."""

    taps: float = figure(0.7, "deeplabv3_mobilenet_v3_large")
    """What of its share the direct form keeps where it goes tap by tap."""

    inputs: float = figure(4.8, "resnet50")
    """To transform a vector of channels, per position: mostly stores beyond the first level."""

    outputs: float = figure(4.4, "resnet18")
    """The same of outputs."""

    filters: float = figure(3.0, "resnet50")
    """And of a cache line of filters."""

    factor: float = figure(2.0, "resnet50")
    """Of a multiplication of a filter's transform: from a convolution of 3x3 and one of 1x7, on AVX2."""

    sum: float = figure(0.75, "resnet50")
    """Of a sum of it."""

    crossed: float = figure(20.0, "resnet50")
    """To read a cache line that another core has written just before: 8 to 70, the more the further apart the cores are."""

    spilled: float = figure(10.0, "resnet50")
    """Lost for a cache line of transformed inputs beyond what the second level holds, which is written to and read from memory
    that other steps have used since. Of 128 channels at 28 x 28 two strips for one take 1.06 to 1.2 times less on a Zen 3 with
    512 KB, in ResNet-18 and 50, and by themselves nothing."""

    again: tuple[float, float] = figure((0.5, 2.0), "resnet18")
    """Lost for a cache line of filters that another strip reads again from the third cache level, and from memory: derived from
    one convolution each on a Zen 4, of 512 channels and of 1024."""

    turn: int = figure(11, "resnet50")
    """To begin and end a register tile, at each position and block, where a single multiply-add begins in a cycle; and what a
    row of positions takes of a filter in registers with one tile, on a Zen 4."""

    line: float = figure(2.6, "resnet50")
    """To transform the columns of a vector of filters in lines, for each value: its taps come from the second cache level."""

    deep: float = figure(2.0, "resnet50")
    """How many times as long the filters of a block of all channels take, of which two rows of positions, 48 KB, leave the first
    level: of 64 channels at 56 x 56 each further strip costs 12 us."""

    margin: float = figure(1.06, "resnet50")
    """By what filters in lines have to be estimated better than others, whose estimates are up to as much too high where
    register tiles fit the strip; and F(3, 3) than another form where loads are cheap. Estimates know nothing of the rows of
    register tiles, of which 5 for its 25 tiles of a map of 14 x 14 do better than 4 for 16 tiles where loads are dear: there it
    was measured, before the last of 16 tiles could be shorter."""

    phased: float = figure(1.03, "resnet50")
    """By what F(5, 2) has to be estimated better than F(4, 2): estimated the same, 128 channels at 56 x 56 took a tenth longer
    in ResNet-50 on two threads, and 1 to 3 % less time by themselves on one."""

    depth: int = figure(32, "resnet50")
    """Input channels of a block, at most: more, and the transformed filters crowd the second cache level."""

    most_tiles: int = figure(112, "resnet50")
    """Tiles of a strip, at most: with more, its transformed inputs leave the caches."""

    together: int = figure(4, "vgg16")
    """How many times the second cache level filters in registers are for several register tiles to make a strip, and how many:
    they share a block's taps. 512 channels at 14 x 14 gain 3 %, 1024 15; 256 channels, of a quarter of the taps, gain nothing."""


@record(frozen=True)
class StrassenSums:
    """Cycles that a vector of each quarter takes: of the left operand; of the same for each other worker who makes it too, and
    then has half of every row to read from another core; of that where rows are so few that other products are shared like this
    as well; of the right operand, while a tile is reduced; of the result."""

    left: int
    again: int
    few_again: int
    right: int
    result: int


@record(frozen=True)
class StrassenFigures:
    """Which products are done by Strassen's algorithm, and how they are cut (`codegen.families.strassen.plan`)."""

    once: StrassenSums = figure(StrassenSums(16, 250, 16, 10, 10), "resnet50")
    """Additions, on a core of one multiply-add in a cycle."""

    twice: StrassenSums = figure(StrassenSums(14, 150, 150, 3, 16), "resnet50")
    """On one of two."""

    apart: float = figure(2.0, "resnet50")
    """How many times as long sums of the left operand take where halves of the depth are not whole vectors, which then lie
    across cache lines: chosen. 528 channels to 88 at 14 x 14 and 264 to 88 at 28 x 28, which stay whole by it, took 0.98 to 1.01
    times as fast, in busy spells 0.90. Where registers are few as many times as long when a worker's part of it does not fit the
    second level (512 channels at 28 x 28 to 256 then took 1.03 to 1.07 times as long as whole, and 0.97 to 0.99 at 14 x 14); and
    as much is lost by what others make too."""

    computed: float = figure(1.25, "efficientnet_b0")
    """How many times as long they take where a worker writes rows of the left operand, too: chosen. 576 channels to 96 at 19 x
    19, which stay whole by it, were 1.06 times as fast, in busy spells 0.83 to 0.95."""

    worth: float = figure(1.5, "resnet50")
    """How many times the cycles of all sums those saved of the products must be: inside a model, operands are further away."""

    few_worth: float = figure(1.7, "resnet50")
    """And where registers are few: what was estimated at 1.6 times, 768 to 192 channels at 17 x 17, took 1.03 to 1.11 times as
    long as whole there."""

    sharing: int = figure(7, "resnet50")
    """Tiles that share a right factor: so many do best; of low ones as many as have the rows of so many of 8."""

    store: int = figure(3, "resnet50")
    """Cycles that a vector of a product takes to be written at the end of its tile."""

    chunk: tuple[float, float, float] = figure((1.3, 0.6, 1.0), "resnet50")
    """Of the first cache level, what a chunk of a right factor takes at most: it is written there once and read by every tile. A
    core of one multiply-add in a cycle, the first of the three, has the time to read it from the second level, which one of two
    has not. More, too, where registers are few, the last: a tile's steps are soon done, and a chunk begins and ends with all of
    its sums in memory."""

    shortest: int = figure(48, "resnet50")
    """Fewest rows, and steps of the depth that are added up in one go, if it has them: fewer rows do not fill the registers.
    Where registers are few four times as many, whether it has them or not: products of a depth of 256 took up to 7 % longer than
    plain ones, those of 512 up to 6 % less."""


@record(frozen=True)
class MeasuredFigures:
    """All of them, by subject."""

    tile: TileFigures = TileFigures()
    overhead: OverheadFigures = OverheadFigures()
    sharing: SharingFigures = SharingFigures()
    caches: CacheFigures = CacheFigures()
    prefetch: PrefetchFigures = PrefetchFigures()
    samples: SampleFigures = SampleFigures()
    ways: WayFigures = WayFigures()
    integer: IntegerFigures = IntegerFigures()
    winograd: WinogradFigures = WinogradFigures()
    strassen: StrassenFigures = StrassenFigures()

    def __hash__(self) -> int:
        """Targets of different figures are few, and hashed often."""
        return hash(MeasuredFigures)
