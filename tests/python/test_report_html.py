"""The page of a report: what is in it, and that a browser shows it."""

import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser

import pytest
from test_hlo_fuzz import TEXT

from torch_xla_cc._hlo.collectives import finder
from torch_xla_cc._hlo.text import Reader
from torch_xla_cc._inspect import html, report, rows

CHROMIUM = shutil.which("chromium")


def reports():
    found = finder(Reader(TEXT.splitlines()).computations())
    made = tuple(rows.rows(found.found(), found.found(), 4))
    lengths = {"main": found.lengths["main"]}
    memory = {"arguments": 1 << 20}
    return [
        report.Report("step", "tpu:v5e:2x2", 4, made, memory, "", lengths, (), 7000, 3500),
        report.Report("broken", "gpu:h100x8", 8, (), failure="it crashed"),
        report.Report("large", "tpu:v5e:16x16", 256, made, lengths=lengths),
    ]


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page():
    page = Page(html.page(reports()))
    assert not page.open  # all that was opened is closed
    assert page.of("html")[0]["lang"] == "en"
    names = {attributes["href"] for attributes in page.of("a")}
    places = {f"#{attributes['id']}" for _, attributes in page.tags if "id" in attributes}
    assert {name for name in names if name.startswith("#")} == places
    assert len(page.of("caption")) == len(page.of("table")) == 9
    assert all("scope" in attributes for attributes in page.of("th"))
    assert all(one["role"] == "img" and one["aria-label"] for one in page.of("svg"))
    # What scrolls can be reached and scrolled by keyboard.
    assert all(one["tabindex"] == "0" for one in page.of("div") if one.get("class") == "wide")
    assert "train.py:3" in page.text and "it crashed" in page.text
    assert "6 of 6 collectives kept; of 6 in the compiled program 0 overlapped" in page.text
    fewest = "the fewest possible for these calls and their types (3,500)"
    assert page.text.count(f"busiest link: 7,000 bytes, 2.00 times {fewest}") == 1
    assert "all-gather-start" in page.text and "252-255" in page.text
    assert not page.of("script") and "http" not in html.page(reports()).replace("http-equiv", "")


def pixels(path):
    """Width, height and the rows of a PNG, as bytes with their filters."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    return width, height, zlib.decompress(packed)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: make packages-test")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(tmp_path, scheme):
    (tmp_path / "report.html").write_text(html.page(reports()))
    shot = tmp_path / "shot.png"
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
        "--window-size=1200,1600",
        "--enable-logging=stderr",
    ]
    url = f"file://{tmp_path / 'report.html'}"
    done = subprocess.run(
        [*command, f"--screenshot={shot}", url], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Refused to" not in done.stderr  # nothing in it is against its own policy
    width, height, rows_of_it = pixels(shot)
    assert (width, height) == (1200, 1600)
    counts = [rows_of_it.count(bytes([value])) for value in range(256)]
    assert sum(count > 0 for count in counts) > 50  # not a blank page
    shown = subprocess.run(
        [*command, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert Page(shown).text.count("Traffic between ranks") == 3
