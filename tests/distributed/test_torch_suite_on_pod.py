"""A part of PyTorch's own tests of backends on the pod; `pytest --on-pod` runs all there."""

import processes
import pytest
import torch_suite
from torch_suite_left_out import LEFT_OUT, SLOW

_LEFT_OUT = {name for names in LEFT_OUT.values() for name in names}
_EVERY = 10
_ENV = {"BACKEND": "xla_cc", "WORLD_SIZE": str(torch_suite.SIZE), "PJRT_DEVICE": "POD"}
_AGREE = {"TORCH_XLA_CC_POD_PROGRAMS": "same"}
_RUN = [name for name in torch_suite.names() if name not in {*_LEFT_OUT, *SLOW}][::_EVERY]


@pytest.fixture(scope="module", params=[{}, _AGREE], ids=["", "agree"])
def ranks(request):
    processes.close_all()
    with processes.Processes(torch_suite.SIZE, {**_ENV, **request.param}) as ranks:
        yield ranks


@pytest.mark.parametrize("name", _RUN)
def test_of_torch(name, ranks, tmp_path):
    for folder in ("barrier", "test_dir"):
        (tmp_path / folder).mkdir()
    ranks.run(torch_suite.run_test, name, str(tmp_path), timeout_s=150)
