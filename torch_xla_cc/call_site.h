// Where in the user's code a collective was issued.
#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "lowering/lower.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

// The innermost Python frame outside of this package, and of torch and torch_xla if there is one.
// Needs the interpreter lock; no site if there is no Python caller.
Site CurrentSite();
// File and line. Needs the interpreter lock.
CallSite Resolve(const Site& site);

// The folders of this package, and of those that stand between it and the user.
void SetFolders(const std::string& ours, const std::vector<std::string>& libraries);

}  // namespace xla_cc
