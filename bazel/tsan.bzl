"""Libraries and tests that are built twice: as they are, and with the thread sanitizer."""

_TSAN = ["-fsanitize=thread", "-O1", "-g"]

def cc_library_with_tsan(name, deps = [], tsan_deps = [], **options):
    """`name`, and `name`_tsan of the same sources. `deps` are of both; of `tsan_deps` each its own."""
    native.cc_library(name = name, deps = deps + tsan_deps, **options)
    native.cc_library(
        name = name + "_tsan",
        deps = deps + [dep + "_tsan" for dep in tsan_deps],
        copts = _TSAN,
        linkopts = ["-fsanitize=thread"],
        **options
    )

def cc_test_with_tsan(name, deps = [], tsan_deps = [], **options):
    """The same of a test."""
    native.cc_test(name = name, deps = deps + tsan_deps, **options)
    native.cc_test(
        name = name + "_tsan",
        deps = deps + [dep + "_tsan" for dep in tsan_deps],
        copts = _TSAN,
        linkopts = ["-fsanitize=thread"],
        **options
    )
