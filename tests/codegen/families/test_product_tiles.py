"""The choice of register tiles by counting."""

from dataclasses import replace

import pytest

from fusewise.codegen.cost import matrix_cycles, matrix_finish
from fusewise.codegen.families.product.plan import Product, RowAxis, plan_product, tiles_for
from fusewise.codegen.families.product.tiles import SLIM_ROWS, TiledProduct, favourite_tiles, is_slim, widths
from fusewise.codegen.instructions.table import AMX_BF16, AMX_INT8, AMX_PARTS
from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import MATRIX_TARGET, TARGETS, Target

AVX512 = next(target for target in TARGETS if target.name == "avx512")
ONE_A_CYCLE = replace(AVX512, multiply_bits=512)


def test_tiles_fit_the_registers_and_the_product() -> None:
    for target in TARGETS:
        for rows, columns in ((1, 1000), (3, 40), (196, 256)):
            found = favourite_tiles(target, TiledProduct(rows, columns, 64), (target.lanes,))
            assert found
            for tile in found:
                assert tile.rows <= rows
                assert tile.rows * tile.vectors + tile.vectors < target.registers or tile.rows == 1


def test_far_results_of_few_steps_are_written_by_whole_rows() -> None:
    """Six vectors are a row of 96 channels; a reduction of 16 steps is over before the rest of a row has come."""
    rows, columns, depth = 112 * 112, 96, 16
    near = favourite_tiles(AVX512, TiledProduct(rows, columns, depth), (16,))[0]
    far = favourite_tiles(AVX512, TiledProduct(rows, columns, depth, written=4 * rows * columns), (16,))[0]
    assert near.vectors < 6
    assert far.vectors == 6


def test_where_results_go_does_not_matter_to_long_reductions() -> None:
    rows, columns, depth = 56 * 56, 256, 256
    near, far = (
        favourite_tiles(AVX512, TiledProduct(rows, columns, depth, written=n), (16,))[0]
        for n in (0, 4 * rows * columns)
    )
    assert near == far


@pytest.mark.parametrize(("columns", "lanes"), [(24, 8), (40, 8), (8, 8), (32, 16), (96, 16), (5, 8), (1, 1)])
def test_half_vectors_where_whole_ones_multiply_half_as_often(columns: int, lanes: int) -> None:
    """24 columns are two vectors of 16, of which a quarter is computed twice, or three of 8."""
    assert favourite_tiles(ONE_A_CYCLE, TiledProduct(784, columns, 144), widths(ONE_A_CYCLE, columns))[0].lanes == lanes
    assert len(widths(AVX512, columns)) == 1
    assert (
        favourite_tiles(AVX512, TiledProduct(784, columns, 144), widths(AVX512, columns))[0].lanes
        == widths(AVX512, columns)[0]
    )


def test_dear_loads_ask_for_tiles_that_load_less() -> None:
    """Of 784 rows by 512 columns; where loads cost little, what is left over at edges and ends decides."""

    def loads(overhead: OverheadFigures) -> float:
        tile = favourite_tiles(AVX512.with_figures(overhead=overhead), TiledProduct(784, 512, 128), (16,))[0]
        return (tile.rows + tile.vectors) / (tile.rows * tile.vectors)

    assert loads(OverheadFigures(load=0.24, line=0.2, finish=0.0)) < loads(OverheadFigures())


def test_four_vectors_from_the_second_level_may_cost_more() -> None:
    """196 rows by 256 columns: of 1024 steps a panel leaves the first level, of 64 it does not."""
    zen = AVX512.with_figures(overhead=OverheadFigures(fourth=0.2))
    deep, shallow = (
        [favourite_tiles(t, TiledProduct(196, 256, depth), (16,))[0] for t in (AVX512, zen)] for depth in (1024, 64)
    )
    assert [tile.vectors for tile in deep] == [4, 2]
    assert shallow[0] == shallow[1]


def test_one_multiply_add_a_cycle_takes_tiles_of_one_vector_for_products_that_stay_near() -> None:
    """Of whole tiles that divide a run of rows, a depth worth beginning for, and a left operand that the second level holds."""

    def vectors(rows: int, depth: int, target: Target = ONE_A_CYCLE, written: int = 1 << 18, **given: int) -> int:
        return favourite_tiles(target, TiledProduct(rows, 256, depth, written=written, **given), (16,))[0].vectors

    assert vectors(196, 384) == 1
    assert vectors(196, 384, AVX512) > 1
    assert vectors(196, 384, written=1 << 22) > 1
    assert vectors(196, 384, written=0) > 1  # of attention, whose results stay
    assert vectors(196, 32) > 1
    assert vectors(169, 384) > 1
    assert vectors(196, 384, row_extent=13) > 1
    assert vectors(196 * 64, 384) > 1


def test_slim_tiles_are_for_one_multiply_add_a_cycle() -> None:
    assert [rows for rows in range(1, 20) if is_slim(ONE_A_CYCLE, Tile(rows, 1, 16))] == list(SLIM_ROWS)
    assert not is_slim(ONE_A_CYCLE, Tile(7, 2, 16))
    assert not is_slim(ONE_A_CYCLE, Tile(7, 1, 8))  # of half a vector, two begin
    assert not is_slim(AVX512, Tile(7, 1, 16))
    assert not is_slim(replace(ONE_A_CYCLE, registers=16), Tile(7, 1, 16))


@pytest.mark.parametrize("workers", [2, 3])
def test_rows_are_cut_into_as_many_blocks_as_workers_or_a_multiple(workers: int) -> None:
    """1024 columns of 196 rows, which would all be one block."""
    product = Product((), (RowAxis("i2", 196, 256),), "i1", 1024, 256)
    schedule = plan_product(product, replace(AVX512, workers=workers), Tile(7, 2, 16), 1024, 1024 * 1024)
    assert not schedule.by_columns
    assert -(-28 // schedule.per_block) % workers == 0


def test_tiles_whose_panels_cannot_be_dealt_out_evenly_come_later() -> None:
    def waiting(tile: Tile) -> float:
        panels = -(-192 // tile.width)
        return -(-panels // 2) * 2 / panels

    dear = AVX512.with_figures(overhead=OverheadFigures(load=0.24, line=0.2, finish=0.0))
    alone, dealt = (
        favourite_tiles(dear, TiledProduct(49, 192, 32), (16,), **options)[0] for options in ({}, {"waiting": waiting})
    )
    assert waiting(alone) > 1
    assert waiting(dealt) == 1


def test_multiply_adds_in_a_cycle() -> None:
    assert [AVX512.multiplies(bits) for bits in (512, 256, 32)] == [2, 2, 2]
    assert [ONE_A_CYCLE.multiplies(bits) for bits in (512, 256, 32)] == [1, 2, 2]


def test_rows_of_one_set_of_the_cache_stay_within_its_places() -> None:
    def most_rows(stride: int) -> int:
        product = Product((), (RowAxis("i0", 196, stride),), "i1", 16, 72, groups=4)
        return max(tile.rows for tile in tiles_for(product, AVX512, (16,)))

    assert most_rows(1024) == most_rows(2048) == 8
    assert most_rows(1040) > 8


@pytest.mark.parametrize(
    "rows, columns, shape",
    [
        (1024, 1024, (2, 2)),
        (128, 768, (2, 2)),
        (3136, 64, (2, 2)),
        (16, 768, (1, 6)),
        (31, 768, (1, 6)),
        (64, 16, (2, 1)),
    ],
)
@pytest.mark.parametrize("row", [AMX_BF16, AMX_PARTS, AMX_INT8[0]], ids=repr)
def test_tiles_of_a_matrix_unit(row: Instruction, rows: int, columns: int, shape: tuple[int, int]) -> None:
    """Large products take the square, which loads least for each product; few rows as many columns as registers allow."""
    product = TiledProduct(rows, columns, 384, max_rows=48, instruction=row)
    best, *others = favourite_tiles(row.room(MATRIX_TARGET), product, widths(MATRIX_TARGET, columns, row))
    assert (best.rows // 16, best.vectors) == shape
    for tile in (best, *others):
        assert tile.rows // 16 * (tile.vectors + 1) < 8 and tile.rows <= max(16, rows) and tile.lanes == 16


def test_a_sum_of_a_matrix_unit_waits_for_the_product_before() -> None:
    """A single tile multiplies once in 52 cycles, four of them each in 16; parts wait for one after the other."""
    cycles = {
        shape: matrix_cycles(MATRIX_TARGET, Tile(16 * shape[0], shape[1], 16, AMX_BF16))
        for shape in ((1, 1), (2, 2), (1, 6))
    }
    assert 16 * cycles[1, 1] == pytest.approx(52, abs=1) and 16 * cycles[2, 2] == pytest.approx(64, abs=1)
    assert 16 * cycles[1, 6] == pytest.approx(96, abs=2)
    in_parts = matrix_cycles(MATRIX_TARGET, Tile(32, 2, 16, AMX_PARTS))
    assert 32 * in_parts == pytest.approx(3 * 64, abs=3)
    assert matrix_finish(Tile(32, 2, 16, AMX_BF16)) == 4 + 4 * (8 + 16)
