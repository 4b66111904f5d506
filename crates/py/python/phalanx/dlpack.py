"""Memory of tensors that only speak DLPack, as PyTorch's do: where it is, read from the structure that the standard fixes."""

from __future__ import annotations

import ctypes
from typing import Any


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """``DLTensor``, with which ``DLManagedTensor`` begins."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def lent(call: str, array: Any) -> tuple[int, int, tuple[int, int]]:
    """The element type's number, how many elements there are, and where. The memory stays the array's."""
    capsule = array.__dlpack__()
    tensor = ctypes.cast(_pointer(capsule, b"dltensor"), ctypes.POINTER(_Tensor)).contents
    if tensor.device_type != _CPU:
        raise ValueError(
            f"phalanx: {call}: array is on a device of DLPack's kind {tensor.device_type}, must be on the cpu"
        )
    dtype = _DTYPES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise TypeError(f"phalanx: {call}: array has elements of DLPack's type {tensor.dtype.code}, must be numbers")
    shape = tensor.shape[: tensor.ndim]
    count = 1
    for at in range(tensor.ndim - 1, -1, -1):
        if tensor.strides and shape[at] > 1 and tensor.strides[at] != count:
            raise ValueError(f"phalanx: {call}: array has gaps, must be contiguous")
        count *= shape[at]
    return dtype, count, ((tensor.data or 0) + tensor.byte_offset, count * (tensor.dtype.bits // 8))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_CPU = 1
# By the code of the kind and the bits of an element.
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_DTYPES = {
    (_FLOAT, 64): 1,
    (_FLOAT, 32): 2,
    (_FLOAT, 16): 3,
    (_BFLOAT, 16): 4,
    (_BOOL, 8): 17,
    (_COMPLEX, 64): 18,
    (_COMPLEX, 128): 19,
}
# The four 8-bit floats that are known here, by codes of their own.
_DTYPES |= {(10, 8): 5, (12, 8): 6, (11, 8): 7, (13, 8): 8}
_DTYPES |= {(_SIGNED, 8): 9, (_SIGNED, 16): 11, (_SIGNED, 32): 13, (_SIGNED, 64): 15}
_DTYPES |= {(_UNSIGNED, 8): 10, (_UNSIGNED, 16): 12, (_UNSIGNED, 32): 14, (_UNSIGNED, 64): 16}
