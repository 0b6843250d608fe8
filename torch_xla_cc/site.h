// A place in the user's code, cheap to note on every call and to copy.
#pragma once

#include <string>

struct PyCodeObject;

namespace xla_cc {

// A code object and a place in it. Code objects that issue collectives are kept for good: they are
// as many as there are such functions in the program, so a site can be copied without the
// interpreter lock.
struct Site {
  PyCodeObject* code = nullptr;
  int instruction = 0;
};

// "train.py:12". Takes the interpreter lock, which no one may wait for who holds a lock of ours.
// Defined by call_site.cc; tests without Python have their own.
std::string Text(const Site& site);

}  // namespace xla_cc
