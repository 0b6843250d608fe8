"""Autograd's threads ask tensors for shapes without an operator: nothing may run beside them."""

import in_backward
import pods
import staying


def test_what_is_pending_waits_for_the_end_of_a_backward_pass():
    (in_hook, after, x), (_, _, other) = pods.run(2, staying.at, "long", in_backward.waits, False)
    assert in_hook == 0
    assert after == 1
    assert x == other == [3.0] * 2


def test_a_hook_may_wait_for_who_waits_for_it():
    found = pods.run(2, staying.at, "blocks", in_backward.waits, True)
    assert [x for _, _, x in found] == [[3.0] * 2] * 2
    assert found[0][0] == 1
