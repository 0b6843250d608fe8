"""What is changed together is put back together: exactly, also after an error, by any thread."""

import contextlib
import threading
import types

import pytest

from torch_xla_cc._runtime import versions
from torch_xla_cc._runtime.patches import Patches, changes


def somebodys():
    """A module of somebody's, with all that can be changed."""

    class Base:
        def inherited(self):
            return "inherited"

    class Thing(Base):
        def method(self):
            return "method"

        @classmethod
        def of_class(cls):
            return cls.__name__

    module = types.ModuleType("somebodys")
    module.Thing = Thing
    module.number = 3
    module.function = lambda: "function"
    module.table = {"a": 1}
    return module


def state(module):
    thing = module.Thing
    own = {name: value for name, value in vars(thing).items() if callable(value)}
    return dict(vars(module)), own, dict(module.table), vars(thing)["of_class"]


def make_all(made, module):
    made.put(module, "number", 4)
    made.wrap(module, "function", lambda theirs: theirs() + " of ours")
    made.put(module.Thing, "inherited", lambda self: "ours")
    made.put(module.Thing, "of_class", classmethod(lambda cls: "ours"))
    made.wrap(module.Thing, "method", lambda theirs, self: theirs(self) + " of ours")
    made.item(module.table, "a", 2)
    made.item(module.table, "b", 3)
    made.add(module, "new", None)
    made.add(module, "number", 5)  # is there


def test_all_of_it_and_back():
    module = somebodys()
    before = state(module)
    patches = Patches("a test", make_all)
    with patches.installed(module):
        thing = module.Thing()
        assert (module.number, module.function(), module.new) == (4, "function of ours", None)
        assert (thing.inherited(), thing.method()) == ("ours", "method of ours")
        assert module.Thing.of_class() == "ours"
        assert module.table == {"a": 2, "b": 3}
    assert state(module) == before
    assert "inherited" not in vars(module.Thing)


@pytest.mark.parametrize("fails_at", range(9))
def test_what_fails_half_way_leaves_nothing(fails_at):
    module = somebodys()
    before = state(module)

    class Failing:
        """The Changes, of which one fails."""

        def __init__(self, made):
            self._made, self._left = made, fails_at

        def __getattr__(self, name):
            if self._left == 0:
                raise RuntimeError("half way")
            self._left -= 1
            return getattr(self._made, name)

    patches = Patches("a test", lambda made: make_all(Failing(made), module))
    for _ in range(2):  # the second time as the first
        with pytest.raises(RuntimeError, match="half way"):
            patches.install()
        assert state(module) == before
    patches.uninstall()
    assert state(module) == before


def test_who_is_the_last():
    module = somebodys()
    patches = Patches("a test", lambda made: made.put(module, "number", 4))
    patches.install()
    patches.install()
    with patches.installed():
        pass
    assert module.number == 4
    patches.uninstall()
    assert module.number == 3
    patches.uninstall()
    assert module.number == 3
    first, second = patches.installed(), patches.installed()
    with first, contextlib.ExitStack() as stack:
        stack.enter_context(second)
        patches.uninstall()  # the blocks are over
        assert module.number == 3
        with patches.installed():
            stack.close()  # an old block ends, and not the new one
            assert module.number == 4
        assert module.number == 3
    assert module.number == 3


def test_what_another_is_built_on_stays():
    module = somebodys()
    below = Patches("below", lambda made: made.put(module, "number", 4))
    above = Patches("above", lambda made: made.enter(below.held()))
    above.install()
    below.install()
    below.uninstall()
    assert module.number == 4
    above.uninstall()
    assert module.number == 3


def test_of_one_thread():
    module = somebodys()
    patches = Patches("a test", lambda made: made.put(module, "number", 4), once=True)
    patches.install()
    with pytest.raises(RuntimeError, match="a test is installed already: uninstall"):
        patches.install()
    said = []

    def uninstall():
        with pytest.raises(RuntimeError, match="is of one thread, and was installed on another"):
            patches.uninstall()
        said.append(module.number)

    other = threading.Thread(target=uninstall)
    other.start()
    other.join()
    assert said == [4]
    patches.uninstall()
    assert module.number == 3


def test_threads():
    module = somebodys()
    made_by = []

    def make(made):
        made_by.append(threading.get_ident())
        made.put(module, "number", module.number + 1)

    patches = Patches("a test", make)
    ready = threading.Barrier(8)
    wrong = []

    def use():
        ready.wait()
        for _ in range(300):
            with patches.installed():
                if module.number != 4:
                    wrong.append(module.number)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and module.number == 3 and made_by


def test_what_is_not_there():
    module = somebodys()
    before = state(module)

    def make(made):
        made.put(module, "number", 4)
        made.put(module, "renamed", 4)

    with pytest.raises(versions.UnsupportedVersion, match=r"a test: .*has no attribute 'renamed'"):
        Patches("a test", make).install()
    assert state(module) == before
    with pytest.raises(versions.UnsupportedVersion, match=r"somebodys.function is .* it replaces"):
        Patches("a test", lambda made: made.put(module, "function", 3)).install()
    with pytest.raises(versions.UnsupportedVersion, match="has no attribute 'renamed'"):
        Patches("a test", lambda made: made.wrap(module, "renamed", print)).install()


def test_what_somebody_has_put_over_it_stays():
    module = somebodys()
    patches = Patches("a test", lambda made: make_all(made, module))
    patches.install()
    module.number = 7
    module.table["a"] = 8
    with pytest.warns(RuntimeWarning) as warned:
        patches.uninstall()
    texts = [str(one.message) for one in warned]
    assert len(texts) == 2
    assert all("a test" in text and "Undo in the other order" in text for text in texts)
    assert (module.number, module.table) == (7, {"a": 8})
    assert module.function() == "function"


def test_objects_are_put_back_exactly():
    class Thing:
        def method(self):
            return "method"

    class Other(Thing):
        pass

    def function():
        return "function"

    one = Thing()
    one.own = 3
    code = function.__code__
    with changes("a test") as made:
        made.put(one, "method", lambda: "ours")
        made.put(one, "own", 4)
        made.put(one, "__class__", Other)
        made.put(function, "__code__", (lambda: "ours").__code__)
        assert (one.method(), one.own, type(one), function()) == ("ours", 4, Other, "ours")
    assert vars(one) == {"own": 3} and type(one) is Thing
    assert one.method() == "method" and function.__code__ is code


def test_changes_for_a_block():
    module = somebodys()
    before = state(module)
    with pytest.raises(KeyError), changes("a test") as made:
        make_all(made, module)
        assert module.number == 4
        raise KeyError
    assert state(module) == before


def test_other_versions(monkeypatch):
    module = somebodys()
    monkeypatch.setitem(versions.MADE_FOR, "numpy", "0.1")
    monkeypatch.setattr(versions, "_warned", set())
    patches = Patches("adapters.numpy", lambda made: made.put(module, "number", 4), ("numpy",))
    with pytest.warns(RuntimeWarning, match=r"adapters.numpy was made for numpy 0.1, and there is"):
        patches.install()
    patches.uninstall()
    patches.install()  # it has been said
    patches.uninstall()
    failing = Patches("adapters.numpy", lambda made: made.put(module, "x", 4), ("numpy",))
    with pytest.raises(versions.UnsupportedVersion, match=r"pip install numpy==0.1"):
        failing.install()
