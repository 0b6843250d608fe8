// Where in the user's code a collective was issued, cheap enough to note on every call.
#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "lowering/lower.h"

namespace xla_cc {

// A code object and a place in it. Code objects that issue collectives are kept for good: they are
// as many as there are such functions in the program, and a site can then be copied without the
// interpreter lock.
struct Site {
  PyCodeObject* code = nullptr;
  int instruction = 0;
};

// The innermost Python frame outside of this package, and of torch and torch_xla if there is one.
// Needs the interpreter lock; no site if there is no Python caller.
Site CurrentSite();
// File and line. Needs the interpreter lock.
CallSite Resolve(const Site& site);
std::string ToString(const CallSite& site);

// The folders of this package, and of those that stand between it and the user.
void SetFolders(const std::string& ours, const std::vector<std::string>& libraries);

}  // namespace xla_cc
