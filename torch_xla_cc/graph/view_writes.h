// Writes to a part of a tensor: what a write to a view becomes.
#pragma once

namespace xla_cc {

// In place of torch_xla's kernels of slice_scatter, as_strided_scatter and as_strided_copy, for
// a block of elements that lie next to each other, at import of the extension.
//
// Flat buffers of gradients and parameters (DistributedDataParallel, Megatron, DeepSpeed) are
// written view by view. torch_xla pads each view to the whole buffer and selects by a mask of its
// size: so many passes over the whole as there are views. A concatenation of what is before, the
// view, and what is after, XLA simplifies: to one pass, and where only views are read, to none.
void RegisterViewWrites();

}  // namespace xla_cc
