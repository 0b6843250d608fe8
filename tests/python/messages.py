"""Values that tell their rank, and what calls raise, for the tests of channels."""

import torch
import torch_xla

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def value_of(rank, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) + 10 * rank).to(dtype).to(torch_xla.device())


def line(function, offset):
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + offset}"


def message_of(function, *args):
    try:
        function(*args)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""
