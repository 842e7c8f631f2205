"""The choice of register tiles by counting."""

from fusewise.codegen.llvm.gemm_tile import favourite_tiles
from fusewise.codegen.target import TARGETS

AVX512 = next(target for target in TARGETS if target.name == "avx512")


def test_tiles_fit_the_registers_and_the_product() -> None:
    for target in TARGETS:
        for rows, columns in ((1, 1000), (3, 40), (196, 256)):
            found = favourite_tiles(target, rows, columns, 64, target.lanes)
            assert found
            for r, v in found:
                assert r <= rows
                assert r * v + v < target.registers or r == 1


def test_far_results_of_few_steps_are_written_by_whole_rows() -> None:
    """Six vectors are a row of 96 channels; a reduction of 16 steps is over before the rest of a row has come."""
    rows, columns, depth = 112 * 112, 96, 16
    near = favourite_tiles(AVX512, rows, columns, depth, 16)[0]
    far = favourite_tiles(AVX512, rows, columns, depth, 16, written=4 * rows * columns)[0]
    assert near[1] < 6
    assert far[1] == 6


def test_where_results_go_does_not_matter_to_long_reductions() -> None:
    rows, columns, depth = 56 * 56, 256, 256
    near, far = (favourite_tiles(AVX512, rows, columns, depth, 16, written=n)[0] for n in (0, 4 * rows * columns))
    assert near == far
