"""`txcc` as people find it: its help, what it says of wrong words, and what it prints where."""

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from torch_xla_cc import _aot
from torch_xla_cc.capabilities import _grid
from txcc import cli, progress, types

ROOT = Path(__file__).parents[2]
TXCC = (sys.executable, "-m", "txcc")
COMMANDS = sorted(cli.txcc.commands)
# What each has; the rest of the file is about how.
OPTIONS = {
    "inspect": [
        *("target", "step", "ranks", "rank", "option", "timeout", "dump", "module"),
        *("source", "format"),
    ],
    "compare": ["module", "source", "format"],
    "profile": ["format"],
    "capabilities": ["op", "target", "format"],
    "doctor": ["format"],
    "completion": [],
}
DOCUMENTS = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
LINE = re.compile(r"^(?:    |  )(?:\S+=\S+ )*((?:\.venv/bin/)?txcc [^`\n]*)$", re.M)


def environment(**more):
    env = {name: text for name, text in os.environ.items() if name not in ("PJRT_DEVICE",)}
    return env | {"PYTHONPATH": str(ROOT / "python"), "COLUMNS": "100"} | more


def run(*words, **more):
    return subprocess.run(
        [*TXCC, *words], capture_output=True, text=True, timeout=120, env=environment(**more)
    )


def test_it_is_said_how_far_a_script_is(monkeypatch):
    mine, its = pty.openpty()
    monkeypatch.setattr(progress, "_EVERY_S", 0)
    with os.fdopen(its, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        tell = progress.steps_before(5, "train.py")
        for done in (1, 2, 4):
            tell(done)
        terminal.flush()
        written = os.read(mine, 4096).decode()
    os.close(mine)
    assert "Running train.py on virtual CPU devices up to step 5" in written
    assert "1 of 4" not in written and "2 of 4 steps before it: 0 s left" in written


def on_terminal(*words, **more):
    """What it writes on a terminal."""
    mine, its = pty.openpty()
    process = subprocess.Popen(
        [*TXCC, *words], stdin=its, stdout=its, stderr=its, env=environment(TERM="xterm", **more)
    )
    os.close(its)
    written = b""
    try:
        while part := os.read(mine, 4096):
            written += part
    except OSError:  # so a terminal ends
        pass
    finally:
        os.close(mine)
    process.wait(60)
    return written.decode()


def test_the_commands():
    assert sorted(OPTIONS) == COMMANDS
    done = run("--help")
    assert done.returncode == 0 and "Examples:" in done.stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} .*\.$", done.stdout, re.M), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name):
    done = run(name, "--help")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith(f"Usage: txcc {name} ")
    shown = re.findall(r"^  (?:-h, )?--(\w+)", done.stdout, re.M)
    assert shown == [*OPTIONS[name], "help"]
    assert len(LINE.findall(done.stdout.partition("Examples:")[2].replace('eval "$(', ""))) >= 2


def test_help_says_what_is_taken_if_nothing_is_said():
    text = run("inspect", "--help").stdout
    for default in ("cpu", "120.0", "text"):
        assert f"[default: {default}" in text


def test_without_words_it_is_told_what_there_is():
    done = run()
    assert done.returncode == 2 and "Commands:" in done.stderr


def parsed(line):
    """The words of a line, up to what is the shell's."""
    words = shlex.split(line.partition(" > ")[0].partition(" | ")[0], comments=True)
    command = cli.txcc.commands[words[1]]
    return command.make_context(command.name, words[2:])


def test_all_lines_of_documents_and_help_are_right():
    texts = {path.name: path.read_text() for path in DOCUMENTS}
    for name in COMMANDS:
        with click.Context(cli.txcc.commands[name], info_name=f"txcc {name}") as context:
            texts[name] = context.get_help()
    texts["txcc"] = cli.txcc.get_help(click.Context(cli.txcc))
    lines = [(name, line) for name, text in texts.items() for line in LINE.findall(text)]
    assert len(lines) > 15
    for name, line in lines:
        try:
            parsed(line)
        except click.UsageError as error:
            raise AssertionError(f"{name}: {line}") from error
        for script in re.findall(r"examples/\S+\.py", line):
            assert (ROOT / script).exists(), line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("inspct", "No such command 'inspct'. Did you mean 'inspect'?"),
        ("inspect --formt=json x.py", "No such option '--formt'. Did you mean '--format'?"),
        ("inspect --format=jsn x.py", "is not one of 'text', 'json', 'html'. Did you mean 'json'?"),
        ("inspect --target=tpu:v5:2x4 x.py", "kind:generation:topology, such as tpu:v4:2x2x1"),
        ("inspect --target=tpu:v5:2x4 x.py", "Did you mean 'tpu:v5e:2x4'?"),
        ("inspect --ranks=0 x.py", "Invalid value for '--ranks': 0 is not in the range x>=1"),
        ("inspect --step=two x.py", "Invalid value for '--step': 'two' is not a valid integer"),
        ("inspect --timeout=0 x.py", "Invalid value for '--timeout': 0.0 is not in the range x>0"),
        ("inspect --timeout=nan x.py", "Invalid value for '--timeout': nan is not a number of"),
        ("inspect --timeout=inf x.py", "Invalid value for '--timeout': inf is not a number of"),
        ("inspect --option=a x.py", "Invalid value for '--option': 'a', but it must be NAME=VALUE"),
        ("inspect --dump=x --step=2", "--step has no effect beside --dump"),
        ("inspect --module=x train.py", "--module has no effect beside a script"),
        ("inspect x.py --lr=0.1", "No such option '--lr'"),
        ("compare --format=pdf a b", "'pdf' is not one of 'text', 'json'"),
        ("compare --step=2 a b", "No such option '--step'"),
        ("compare a", "Expected two folders or files, but there are 1"),
        ("capabilities --op=all_gathr", "Did you mean 'all_gather'?"),
        ("doctor now", "Got unexpected extra argument (now)"),
        ("completion fish", "'fish' is not one of 'bash', 'zsh'"),
    ],
)
def test_wrong_words(words, told):
    command, *rest = words.split()
    with pytest.raises(click.UsageError) as raised:
        cli.txcc.main([command, *rest], "txcc", standalone_mode=False)
    assert told in raised.value.format_message()
    assert raised.value.exit_code == 2


def test_what_is_printed_of_wrong_words():
    done = run("inspect", "--formt=json", "x.py")
    assert done.returncode == 2 and not done.stdout and "\x1b" not in done.stderr
    assert "'txcc inspect --help'" in done.stderr and "'--format'" in done.stderr


def test_names_are_those_of_the_package():
    assert tuple(_grid.OPS) == types.OPS
    for target in types.targets()[1:]:
        assert _aot.parse_target(target)


@pytest.mark.parametrize(
    "words", ["--help", "inspect --help", "completion bash", "inspect --target=cpux x.py"]
)
def test_what_needs_no_torch_does_not_import_it(words):
    code = (
        "import sys, txcc\n"
        "try:\n"
        "    txcc.main()\n"
        "finally:\n"
        "    assert not {'torch', 'torch_xla', 'absl'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert "AssertionError" not in done.stderr, done.stderr


def test_in_a_pipe_nothing_but_results():
    done = run("doctor")
    assert done.returncode == 0 and not done.stderr
    assert "torch_xla_cc" in done.stdout and "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("where", "why"), [("> /dev/full", "No space left on device"), (">&-", "stdout is closed")]
)
@pytest.mark.parametrize("words", ["--help", "capabilities --op=send"])
def test_where_nothing_can_be_printed(words, where, why):
    command = f"{shlex.join(TXCC)} {words} {where}"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert done.returncode == 1
    assert why in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.fixture
def without_torch(tmp_path):
    """The environment of one where torch cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('a broken torch')")
    return {"PYTHONPATH": f"{tmp_path}:{ROOT / 'python'}"}


def test_on_a_terminal_progress_and_colours(without_torch):
    coloured = on_terminal("doctor", **without_torch)
    plain = on_terminal("doctor", NO_COLOR="1", **without_torch)
    for text in (coloured, plain):
        assert "Importing PyTorch" in text and "Looking at" in text and "left" in text
    assert "\x1b[31m" in coloured and "\x1b[31m" not in plain


def test_what_is_missing_is_said_without_torch(without_torch):
    done = run("doctor", **without_torch)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert re.search(r"NO +torch_xla_cc +a broken torch +make build", done.stdout)
    done = run("capabilities", **without_torch)
    assert done.returncode == 1 and done.stderr == "txcc capabilities: a broken torch\n"
