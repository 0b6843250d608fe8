"""What all tests share: their order, their layers, and the end of the ranks' processes.

  quick       `make check`, for every save: what needs no ranks, or those of one world size
  hunt        `make hunt`, by hand: random tests, which then do many times as much; see effort.py
  concurrent  `make stress`, by hand: where threads and processes may come in any order, many times

`make test` runs all tests.
"""

import multiprocessing
import os
from collections.abc import Iterator

import effort
import pods
import processes
import pytest
import torchrun
import worlds

# The longest first: one that begins last is waited for by the others. xdist hands files out so.
_LONG = (
    *("test_advice.py", "test_megatron.py", "test_torch_suite.py", "test_capabilities.py"),
    *("test_uneven.py", "test_values.py", "test_spmd.py", "test_dtensor.py", "test_deepspeed.py"),
    *("test_compile_functions.py", "test_left_behind.py", "test_launch.py", "test_fsdp2.py"),
    *("test_pretraining.py", "test_fsdp1.py", "test_random_worlds.py", "test_random_clients.py"),
    *("test_random_layers.py", "test_overlap.py", "test_tutorial.py", "test_tutorial_pages.py"),
    *("test_late_ranks.py", "test_random_programs.py", "test_from_nccl.py", "test_faults.py"),
)

_QUICK = {
    *("test_bare_channels", "test_cache", "test_coming_from_xm", "test_compare", "test_compile"),
    *("test_command_line", "test_command_completion", "test_set_up", "test_packaging"),
    *("test_docs", "test_hlo_fuzz", "test_hlo_traffic", "test_mutations", "test_properties"),
    "test_report_html",
    *("test_policy", "test_public_names", "test_signatures", "test_values", "test_wire"),
}
_QUICK_WORLD = 2
_HUNT = {
    *("test_fallbacks", "test_hlo_fuzz", "test_properties", "test_random_clients"),
    *("test_random_layers", "test_random_programs", "test_random_worlds", "test_soak"),
    *("test_torch_suite", "test_uneven"),
}
_CONCURRENT = {
    *("test_batches", "test_buffers", "test_calls", "test_channels", "test_compiled"),
    "test_ctrl_c",
    *("test_disagree", "test_events", "test_faults", "test_graphs", "test_groups"),
    *("test_late_ranks", "test_launch", "test_left_behind", "test_ordering", "test_process_end"),
    *("test_random_worlds", "test_soak", "test_worlds"),
}

# Not of `--on-pod`, by file, or the test's name with or without its parameters.
_OF_THREADS = "of ranks that are threads: what they are told when they meet, or what they count"
_OF_CPU = "of processes on CPU devices, between which the host carries calls"
_NOT_ON_POD = {
    "test_pending": _OF_THREADS,
    "test_after_a_send_that_nobody_received": _OF_THREADS,
    "test_as_gloo": _OF_THREADS,
    "test_beside_a_rank_that_does_not_compile": _OF_THREADS,
    "test_a_setting_has_calls_stay_in_the_graph_of_a_tpu": _OF_THREADS,
    "test_many_calls_stay_in_the_graph": _OF_THREADS,
    "test_groups_along_the_axes_of_a_mesh_are_the_same_on_all_ranks": _OF_THREADS,
    "test_programs_that_differ": _OF_THREADS,
    "test_two_groups_of_the_same_ranks": _OF_THREADS,
    "test_waiting_for_a_rank_that_has_ended": _OF_THREADS,
    "test_what_a_tpu_runs": _OF_THREADS,
    "test_what_stays_in_the_graph": _OF_THREADS,
    "test_without_a_limit": _OF_THREADS,
    "test_without_tensor_arguments": _OF_THREADS,
    "test_wrong_tag": _OF_THREADS,
    "test_support": _OF_CPU,
    "test_a_process_is_killed": _OF_CPU,
    "test_a_wait_of_its_own_limit": _OF_CPU,
    "test_free_sizes_of_what_goes_through_the_host_are_refused": _OF_CPU,
    "test_sums_of_narrow_floats": _OF_CPU,
    "test_tcp": "it gives no address to the device processes, which only torchrun's variables do",
    "test_the_host_can_be_forbidden": _OF_CPU,
    "test_reduction_of_64_bits_by_exchanges_in_two_stages": "one rank changes what all have",
    **{
        f"test_gradients[uneven_{op}-{size}]": "sizes that differ from rank to rank are of threads"
        for op in ("all_gather", "reduce_scatter", "all_to_all")
        for size in (2, 4)
    },
}
# There the calls of torch.distributed stay in the graph: what is compared before each of them, and
# breaks its group alone, is of `TORCH_XLA_CC_CALLS=each pytest --on-pod`.
_OF_EACH_CALL = "of what is compared at each call: run it with TORCH_XLA_CC_CALLS=each"
_NOT_STAYING = {
    "test_faults",
    *("test_after_a_mismatch", "test_after_a_time_limit", "test_after_an_error_among_coalesced"),
    *("test_asked_for_by_a_signal", "test_worlds_that_failed_leave_no_threads", "test_processes"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--on-pod", action="store_true", help="run ranks as processes of a pod")


def pytest_configure(config: pytest.Config) -> None:
    # With it, `print` writes a line in pieces, and those of several ranks mix.
    os.environ.pop("PYTHONUNBUFFERED", None)
    if config.getoption("--on-pod"):
        os.environ[torchrun.ON_POD] = "1"


def pytest_report_header() -> str:
    return f"random tests: TORCH_XLA_CC_SEED={effort.SEED}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(_LONG)))
    for item in items:
        name = item.path.stem
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if name in _QUICK and parameters.get("world", _QUICK_WORLD) == _QUICK_WORLD:
            item.add_marker("quick")
        if name in _HUNT:
            item.add_marker("hunt")
            if effort.TIMES > 1:  # as long as it takes
                item.add_marker(pytest.mark.timeout(0), append=False)
        if name in _CONCURRENT:
            item.add_marker("concurrent")
        names = {name, item.name, item.name.partition("[")[0]}
        why = next((_NOT_ON_POD[n] for n in names if n in _NOT_ON_POD), "")
        if os.environ.get("TORCH_XLA_CC_CALLS") != "each" and names & _NOT_STAYING:
            why = _OF_EACH_CALL
        if why and os.environ.get(torchrun.ON_POD):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def leaves_ranks() -> Iterator[None]:
    """For tests that leave a world, or adapters, in ranks that are processes; they find none."""
    processes.close_all()
    yield
    processes.close_all()


@pytest.fixture(scope="session", autouse=True)
def _ranks() -> Iterator[None]:
    yield
    pods.close_all()
    processes.close_all()
    worlds.close_all()
    for child in multiprocessing.active_children():  # of what ran beside tests: see beside.py
        child.kill()
