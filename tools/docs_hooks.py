"""What mkdocs.yml adds to MkDocs: the help of `txcc`, and pages that load nothing from the network.

`txcc` imports torch only where a command needs it, so the site is built without it.
"""

import sys
from pathlib import Path

PYTHON = Path(__file__).parents[1] / "python"
HELP = "<!-- help -->"
# What Material's template has for search in pages that are opened from a folder.
SHIM = "https://unpkg.com/iframe-worker/shim"
OURS = "assets/worker.js"


def commands():
    """(heading, the text of --help), of `txcc` and each of its commands."""
    sys.path.insert(0, str(PYTHON))
    from click.testing import CliRunner

    from txcc import cli

    for name in ("", *cli.txcc.commands):
        words = [name, "--help"] if name else ["--help"]
        result = CliRunner().invoke(cli.txcc, words, prog_name="txcc", terminal_width=100)
        if result.exit_code != 0:
            raise RuntimeError(f"txcc {' '.join(words)}: {result.output}")
        yield f"txcc {name}".strip(), result.output


def on_page_markdown(markdown, **_):
    """The page, with the help of every command in place of the mark."""
    if HELP not in markdown:
        return markdown
    parts = [f"## {title}\n\n```text\n{text.strip()}\n```" for title, text in commands()]
    return markdown.replace(HELP, "\n\n".join(parts))


def on_post_page(output, page, **_):
    """The page, with a file of the site in place of the one on the network."""
    return output.replace(SHIM, "../" * page.url.count("/") + OURS)


def on_post_template(output_content, **_):
    """404.html, the same; its links begin at the root of the site."""
    return output_content.replace(SHIM, f"/{OURS}")
