// That other ranks wait in a collective which this process has not given to its device, as its
// device process says. The process may be blocked elsewhere, with the collective in its lazy graph.
#pragma once

namespace xla_cc::pod {

void NoteWanted();

}  // namespace xla_cc::pod
