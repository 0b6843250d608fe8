"""The site of docs/: its links lead somewhere, it needs no network, and a browser shows it."""

import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")
PAGES = ("index", "tutorial/first_collective", "guide", "api/xla_model", "clients/index")
# What a page would load. Links that a reader may follow are others.
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]* src="([^"]*)|<link[^>]* href="([^"]*)')

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="needs the extra docs: make docs"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """As `make docs` builds it; in CI the one that it has built."""
    folder = tmp_path_factory.mktemp("site")
    if built := os.environ.get("TORCH_XLA_CC_SITE"):
        return shutil.copytree(built, folder, dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages(site):
    found = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    assert len(found) > 40
    return found


def test_nothing_is_loaded_from_the_network(site):
    for name, text in pages(site).items():
        loaded = [first or second for first, second in LOADED.findall(text)]
        assert loaded
        assert [one for one in loaded if one.startswith(("http:", "https:", "//"))] == [], name


def test_markdown_is_read_as_it_was_meant(site):
    """GitHub and MkDocs differ: here a list needs an empty line before it."""
    for name, text in pages(site).items():
        body = re.sub(r"<(pre|code).*?</\1>", "", text, flags=re.S)
        for paragraph in re.findall(r"<p>(.*?)</p>", body, re.S):
            plain = html.unescape(paragraph)
            assert not re.search(r"^(?:[-*] |\d+\. |\|)", plain, re.M), (name, plain[:200])
            assert "](" not in plain and "```" not in plain, (name, plain[:200])


def test_the_reference_is_filled(site):
    found = pages(site)
    for name, text in found.items():
        assert "<p>::: " not in text, name
    for command in ("txcc inspect", "txcc doctor"):
        assert f"Usage: {command}" in found["api/txcc.html"]
    for name in ("all_gather_matmul", "own_block"):
        assert f'id="torch_xla_cc.regions.{name}"' in found["api/regions.html"]


def chromium(tmp_path, *arguments):
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            # A page that looked for the network would say so.
            "--proxy-server=127.0.0.1:9",
            "--virtual-time-budget=15000",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line]
    assert told == []
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: make packages-test")
def test_search_works_from_a_folder(site, tmp_path):
    shown = chromium(tmp_path, "--dump-dom", f"file://{site}/guide.html?q=fallback")
    assert re.search(r"\d+ matching documents", shown)


# A page as wide as a phone, in a frame, since Chromium's window is no narrower than 500 pixels.
FRAME = """<!doctype html><iframe id="f" src="{url}" style="width:390px;height:800px"></iframe>
<script>f.onload = () => setTimeout(() => {{
  const page = f.contentDocument.scrollingElement;
  document.title = "width " + page.scrollWidth + " of " + page.clientWidth;
}}, 500)</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: make packages-test")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_in_a_browser(site, tmp_path, page, scheme):
    (site / "frame.html").write_text(FRAME.format(url=f"{page}.html"))
    shown = chromium(
        tmp_path,
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
        "--allow-file-access-from-files",
        "--dump-dom",
        f"file://{site}/frame.html",
    )
    width = re.search(r"<title>width (\d+) of (\d+)</title>", shown)
    assert width and width[1] == width[2]  # nothing is wider than the phone
