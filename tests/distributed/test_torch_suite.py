"""PyTorch's own tests of backends; see torch_suite.py."""

import effort
import processes
import pytest
import torch_suite
from torch_suite_left_out import DOCUMENT, LEFT_OUT, SLOW, document

_LEFT_OUT = [name for names in LEFT_OUT.values() for name in names]
_ENV = {"BACKEND": "xla_cc", "WORLD_SIZE": str(torch_suite.SIZE)}
_NOT_NOW = [] if effort.TIMES > 1 else SLOW


@pytest.fixture(scope="module")
def ranks():
    """Processes of its own: the suite reads its settings when it is imported."""
    processes.close_all()
    with processes.Processes(torch_suite.SIZE, _ENV) as ranks:
        yield ranks


_RUN = [name for name in torch_suite.names() if name not in {*_LEFT_OUT, *_NOT_NOW}]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", _RUN)
def test_of_torch(name, ranks, tmp_path):
    for folder in ("barrier", "test_dir"):
        (tmp_path / folder).mkdir()
    ranks.run(torch_suite.run_test, name, str(tmp_path), timeout_s=600 if name in SLOW else 150)


def test_each_is_run_or_left_out(ranks):
    """What is read in the source is what the suite has, and all that is left out is in it."""
    assert torch_suite.names() == ranks.run(torch_suite.listed)[0]
    assert len(_LEFT_OUT) == len(set(_LEFT_OUT))
    assert not set(SLOW) & set(_LEFT_OUT)
    assert {*SLOW, *_LEFT_OUT} <= set(torch_suite.names())


def test_the_document_is_current():
    assert DOCUMENT.read_text() == document(), "python tests/distributed/torch_suite_left_out.py"
