"""Autograd's threads ask tensors for shapes without an operator: nothing may run beside them."""

import in_backward
import pods
import staying


def test_what_is_pending_waits_for_the_end_of_a_backward_pass():
    (in_hook, after, x), (_, _, other) = pods.run(2, staying.at, "backward", in_backward.waits)
    assert in_hook == 0
    assert after == 1
    assert x == other == [3.0] * 2
