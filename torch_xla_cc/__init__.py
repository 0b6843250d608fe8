"""The C++ of the extension. The package itself is in python/, and is what this becomes.

In the root of the repository Python would take this folder for an empty package of that name.
"""

from pathlib import Path

_package = Path(__file__).resolve().parents[1] / "python" / __name__ / "__init__.py"
__path__ = [str(_package.parent)]
__file__ = str(_package)
exec(compile(_package.read_text(), __file__, "exec"))
