"""How much the random tests do: a little for each commit, and much more by `make hunt`.

Each day has cases of its own; the seed is printed above the tests. TORCH_XLA_CC_SEED=N makes those
of another, TORCH_XLA_CC_HUNT=N so many times as many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import hypothesis

# Of all processes of a run, also of those that start after midnight.
SEED = int(os.environ.setdefault("TORCH_XLA_CC_SEED", str(int(time.time() // 86_400))))
TIMES = int(os.environ.get("TORCH_XLA_CC_HUNT", "1"))


def for_each(count: int, *strategies: Any, **options: Any) -> Callable[[Any], Any]:
    """Call the function with so many examples of the strategies, times what a hunt asks for."""
    settings: dict[str, Any] = {
        "max_examples": count * TIMES,
        "database": None,
        "deadline": None,
        "suppress_health_check": list(hypothesis.HealthCheck),
        **options,
    }

    def decorate(function: Any) -> Any:
        given = hypothesis.given(*strategies)(function)
        return hypothesis.seed(SEED)(hypothesis.settings(**settings)(given))

    return decorate


# Of what takes long the smallest failing example is not looked for.
WITHOUT_SHRINKING = [hypothesis.Phase.generate]
