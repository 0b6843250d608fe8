"""Types of elements: PJRT_Buffer_Type and those of NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from .errors import UNIMPLEMENTED, Refused

# In the order of PJRT_Buffer_Type, from 1 (pod/abi/types.h).
_TYPES: tuple[tuple[str, type], ...] = (
    ("PRED", np.bool_),
    *(("S8", np.int8), ("S16", np.int16), ("S32", np.int32), ("S64", np.int64)),
    *(("U8", np.uint8), ("U16", np.uint16), ("U32", np.uint32), ("U64", np.uint64)),
    *(("F16", np.float16), ("F32", np.float32), ("F64", np.float64)),
    ("BF16", ml_dtypes.bfloat16),
    *(("C64", np.complex64), ("C128", np.complex128)),
    *(("F8E5M2", ml_dtypes.float8_e5m2), ("F8E4M3FN", ml_dtypes.float8_e4m3fn)),
    ("F8E4M3B11FNUZ", ml_dtypes.float8_e4m3b11fnuz),
    ("F8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
    ("F8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
)
_DTYPES = {number: np.dtype(kind) for number, (_, kind) in enumerate(_TYPES, 1)}
_NUMBERS = {name: number for number, (name, _) in enumerate(_TYPES, 1)}


def dtype_of(number: int) -> np.dtype:
    """NumPy's type of a PJRT_Buffer_Type."""
    return _DTYPES[number]


def number_of(name: str) -> int:
    """The PJRT_Buffer_Type of an XLA type, "F32"."""
    if name not in _NUMBERS:
        raise Refused(UNIMPLEMENTED, f"tensors of XLA's type {name} are not implemented by the pod")
    return _NUMBERS[name]


def size_of(number: int, dims: Sequence[int]) -> int:
    """Bytes of an array."""
    return math.prod(dims) * dtype_of(number).itemsize
