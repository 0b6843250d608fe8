// What writes into a tensor is checked by torch's kernels in C++, where those in Python hide them.
#pragma once

namespace xla_cc {

// Before it makes a node of x.add_(y), torch runs it on tensors without data, to have it refused if
// the result does not fit into x. torch has such kernels in C++, and then puts others in their
// place, in Python, which take symbolic sizes too. Those take most of the time in which an
// optimizer's step is traced (benchmarks/optimizer_trace.py). So in such a check, where
// all tensors have plain sizes, those in C++ are called. What they refuse is left to those in
// Python; an op of which they take what Python's refuse is not in meta_kernels.def.
void RegisterMetaKernels();

}  // namespace xla_cc
