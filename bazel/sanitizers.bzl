"""Tests that are built and run once more, with the thread sanitizer.

.bazelrc builds everything with the sanitizers of addresses and of undefined behaviour, which cannot
be in one program with that of threads: what such a test depends on is built twice.
"""

_COPT = "//command_line_option:copt"
_LINKOPT = "//command_line_option:linkopt"
_TSAN = "-fsanitize=thread"

def _with_tsan(options):
    return [option for option in options if "sanitize" not in option] + [_TSAN]

def _tsan_impl(settings, _attr):
    return {option: _with_tsan(settings[option]) for option in [_COPT, _LINKOPT]}

_tsan = transition(
    implementation = _tsan_impl,
    inputs = [_COPT, _LINKOPT],
    outputs = [_COPT, _LINKOPT],
)

def _tsan_test_impl(ctx):
    test = ctx.attr.test[0][DefaultInfo]
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = program,
        target_file = test.files_to_run.executable,
        is_executable = True,
    )
    return [DefaultInfo(executable = program, runfiles = test.default_runfiles)]

_tsan_test = rule(
    implementation = _tsan_test_impl,
    test = True,
    attrs = {
        "test": attr.label(cfg = _tsan, mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)

def cc_test_with_tsan(name, size, timeout, **options):
    """`name`, and `name`_tsan: the same test with the thread sanitizer."""
    native.cc_test(name = name, size = size, timeout = timeout, **options)
    _tsan_test(name = name + "_tsan", size = size, timeout = timeout, test = name)
