"""External repositories without a network: each is written in place, from the text below.

Debian's Bazel (bazel-bootstrap 4.2.3) embeds everything that C++ rules need, except a few
repositories that it would download from GitHub merely to load the BUILD files of its own
@bazel_tools. We use nothing in them, so the smallest text that lets those files load is enough.
"""

# Rules that @bazel_tools loads by way of a repository: Bazel 4 has them all built in.
_RULES_CC = "\n".join(["%s = native.%s" % (rule, rule) for rule in [
    "cc_binary",
    "cc_library",
    "cc_toolchain",
    "cc_toolchain_suite",
]])

_RULES_JAVA = "\n".join(["%s = native.%s" % (rule, rule) for rule in [
    "java_import",
    "java_runtime",
    "java_toolchain",
]])

# Every test depends on this label, also when no coverage is asked for.
_COVERAGE = """
filegroup(name = "coverage_report_generator", visibility = ["//visibility:public"])
"""

# From Debian's libgtest-dev: headers and libraries lie where the compiler looks anyway.
_GOOGLETEST = """
cc_library(
    name = "gtest_main",
    linkopts = ["-lgtest_main", "-lgtest", "-lpthread"],
    visibility = ["//visibility:public"],
)
"""

def _text_repository_impl(ctx):
    for path, text in ctx.attr.files.items():
        ctx.file(path, text)

_text_repository = repository_rule(
    implementation = _text_repository_impl,
    attrs = {"files": attr.string_dict(mandatory = True)},
)

def offline_repositories():
    _text_repository(name = "rules_cc", files = {"cc/BUILD": "", "cc/defs.bzl": _RULES_CC})
    _text_repository(name = "rules_java", files = {"java/BUILD": "", "java/defs.bzl": _RULES_JAVA})
    _text_repository(name = "remote_coverage_tools", files = {"BUILD": _COVERAGE})
    _text_repository(name = "googletest", files = {"BUILD": _GOOGLETEST})
