#include "lowering/model/op.h"

namespace xla_cc {

std::string Name(Op op) {
  switch (op) {
#define COLLECTIVE(Type, name) \
  case Op::k##Type:            \
    return #name;
#include "lowering/collectives.def"
#undef COLLECTIVE
  }
  return "invalid";
}

}  // namespace xla_cc
