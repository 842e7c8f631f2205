"""Values, beside ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.onnxruntime.both import Use, ours, same

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def of(ort: Any, array: np.ndarray) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array)


def from_shape(ort: Any, *asked: Any) -> Any:
    value = ort.OrtValue.ortvalue_from_shape_and_type(*asked)
    return value.shape(), value.data_type(), value.element_type(), value.tensor_size_in_bytes()


def update(ort: Any, array: Any) -> Any:
    kept = X.copy()
    value = of(ort, kept)
    value.update_inplace(array(ort) if callable(array) else array)
    return kept


USES: dict[str, Use] = {
    "shape": lambda ort: of(ort, X).shape(),
    "data_type": lambda ort: [of(ort, X.astype(kind)).data_type() for kind in ("f2", "f8", "i1", "u8", "?", "i8")],
    "element_type": lambda ort: [of(ort, X.astype(kind)).element_type() for kind in ("f2", "f8", "i1", "u8", "?")],
    "device_name": lambda ort: of(ort, X).device_name(),
    "is_tensor": lambda ort: of(ort, X).is_tensor(),
    "is_sparse_tensor": lambda ort: of(ort, X).is_sparse_tensor(),
    "is_tensor_sequence": lambda ort: of(ort, X).is_tensor_sequence(),
    "has_value": lambda ort: of(ort, X).has_value(),
    "tensor_size_in_bytes": lambda ort: of(ort, X).tensor_size_in_bytes(),
    "data_ptr": lambda ort: of(ort, X).data_ptr() == X.ctypes.data,
    "numpy": lambda ort: (of(ort, X).numpy(), np.shares_memory(of(ort, X).numpy(), X)),
    "asarray": lambda ort: (np.asarray(of(ort, X)), np.array(of(ort, X), np.float64)),
    "strided": lambda ort: of(ort, X.T).numpy(),
    "from_dlpack of theirs": lambda ort: np.from_dlpack(of(ort, X)),
    "__dlpack_device__": lambda ort: of(ort, X).__dlpack_device__(),
    "from_dlpack": lambda ort: ort.OrtValue.from_dlpack(X.copy()),
    "from_dlpack of a capsule": lambda ort: ort.OrtValue.from_dlpack(X.copy().__dlpack__()),
    "from shape": lambda ort: from_shape(ort, [2, 3], np.float32),
    "from shape, a dtype": lambda ort: from_shape(ort, (4,), np.dtype("int64")),
    "from shape, a number": lambda ort: from_shape(ort, [2, 3], 16),
    "from a wrong shape": lambda ort: from_shape(ort, [2, -3], np.float32),
    "from shape, texts": lambda ort: from_shape(ort, [2], np.str_),
    "with a type": lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, "u2"), 16).data_type(),
    "with a wider type": lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, "u1"), 16).shape(),
    "of another device": lambda ort: ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
    "of no device": lambda ort: ort.OrtValue.ortvalue_from_numpy(X, "nowhere", 0),
    "of a list": lambda ort: of(ort, [1, 2]),  # type: ignore[arg-type]
    "of texts": lambda ort: of(ort, np.array(["a"])),
    "update": lambda ort: update(ort, X * 2),
    "update by a value": lambda ort: update(ort, lambda ort: of(ort, X * 3)),
    "update, strided": lambda ort: update(ort, np.ones((3, 2), np.float32).T),
    "update, larger": lambda ort: update(ort, np.ones((3, 3), np.float32)),
    "update by a list": lambda ort: update(ort, [1]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_values(use: Use) -> None:
    same(use)


def test_tensors_are_shared_with_torch() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2, 3)
    value = ours.OrtValue.from_dlpack(tensor)
    value.update_inplace(X)
    assert tensor.tolist() == X.tolist()
    there = torch.from_dlpack(value)
    there += 1
    assert value.numpy().tolist() == (X + 1).tolist() and tensor.tolist() == (X + 1).tolist()
    array = ours.OrtValue.from_dlpack(torch.ones(3)).numpy()  # the tensor has no other name
    assert array.tolist() == [1, 1, 1]
    assert ours.OrtValue.from_dlpack(torch.tensor([True, False])).data_type() == "tensor(bool)"


class _Exporter:
    """Exports an array by DLPack, in its first version with a word on writing or, `old`, in the one before."""

    def __init__(self, array: np.ndarray, old: bool) -> None:
        self.array, self.old = array, old

    def __dlpack__(self, **asked: Any) -> Any:
        if self.old and asked:
            raise TypeError("no such keyword")
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("old", [False, True])
def test_what_may_not_be_written_to_is_not_by_dlpack_either(old: bool) -> None:
    array = X.copy()
    ours.OrtValue.from_dlpack(_Exporter(array, old)).update_inplace(X + 1)
    assert array.tolist() == (X + 1).tolist()
    array.flags.writeable = False
    for exporter in [array, _Exporter(array, False)]:
        value = ours.OrtValue.from_dlpack(exporter)
        with pytest.raises(RuntimeError, match="read-only"):
            value.update_inplace(X)
    assert array.tolist() == (X + 1).tolist()
