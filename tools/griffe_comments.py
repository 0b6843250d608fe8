"""For mkdocstrings: a field's comment at the end of its line is its text in the API reference."""

import re

import griffe


class Comments(griffe.Extension):
    """`world: int  # all ranks` is documented by "all ranks", if nothing else is."""

    def on_attribute_instance(self, *, attr, **_):
        """Called for each attribute that is found in a source."""
        if attr.docstring or attr.lineno is None or not attr.filepath.is_file():
            return
        lines = attr.filepath.read_text().splitlines()[attr.lineno - 1 : attr.endlineno]
        if comment := re.search(r"  # (?!type:|noqa)(.+)$", lines[-1] if lines else ""):
            attr.docstring = griffe.Docstring(comment[1], parent=attr)
