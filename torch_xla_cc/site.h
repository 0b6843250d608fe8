// Where in the user's code a collective was issued, cheap enough to note on every call.
#pragma once

#include <Python.h>

#include <string>

#include "lowering/lower.h"

namespace xla_cc {

// A code object and a place in it. Code objects that issue collectives are kept for good: they are
// as many as there are such functions in the program, and a site can then be copied without the
// interpreter lock.
struct Site {
  PyCodeObject* code = nullptr;
  int instruction = 0;
};

// The innermost Python frame outside this package. Needs the interpreter lock; no site if there is
// no Python caller (the backward pass on autograd's own threads).
Site CurrentSite();
// File and line. Needs the interpreter lock.
CallSite Resolve(const Site& site);
std::string ToString(const CallSite& site);

// Frames whose code lies under this folder are ours.
void SetPackageFolder(const std::string& folder);

}  // namespace xla_cc
