"""For mkdocstrings: a field's comment, behind it or above it, is its text in the API reference."""

import re

import griffe


class Comments(griffe.Extension):
    """`world: int  # all ranks` is documented by "all ranks", if nothing else is."""

    def on_attribute_instance(self, *, attr, **_):
        """Called for each attribute that is found in a source."""
        if attr.docstring or attr.lineno is None or not attr.filepath.is_file():
            return
        lines = attr.filepath.read_text().splitlines()
        behind = re.search(r"  # (?!type:|noqa)(.+)$", lines[(attr.endlineno or attr.lineno) - 1])
        above = re.match(r" +# (.+)$", lines[attr.lineno - 2])
        if comment := behind or above:
            attr.docstring = griffe.Docstring(comment[1], parent=attr)
