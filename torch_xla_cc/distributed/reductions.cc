#include "torch_xla_cc/distributed/reductions.h"

#include <ATen/ATen.h>

#include <cmath>

#include "torch_xla_cc/errors.h"

namespace xla_cc {

Reduction ReductionOf(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {ReduceKind::kSum};
    case c10d::ReduceOp::AVG:
      return {ReduceKind::kAverage};
    case c10d::ReduceOp::PRODUCT:
      return {ReduceKind::kProduct};
    case c10d::ReduceOp::MIN:
      return {ReduceKind::kMin};
    case c10d::ReduceOp::MAX:
      return {ReduceKind::kMax};
    case c10d::ReduceOp::BAND:
      return {ReduceKind::kAnd};
    case c10d::ReduceOp::BOR:
      return {ReduceKind::kOr};
    case c10d::ReduceOp::BXOR:
      return {ReduceKind::kXor};
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (factor == nullptr) throw BadValue("op = PREMUL_SUM, but it has no factor");
      const bool tensor = factor->tensor_factor.defined();
      return {ReduceKind::kPremultipliedSum, 1.0,
              tensor ? factor->tensor_factor.item<double>() : factor->double_factor};
    }
    default:
      break;
  }
  throw BadValue("op = " + NameOf(op) +
                 ", but it must be SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR or PREMUL_SUM");
}

c10d::ReduceOp ReduceOpOf(const Reduction& reduction) {
  switch (reduction.kind) {
    case ReduceKind::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceKind::kAverage:
      return c10d::ReduceOp::AVG;
    case ReduceKind::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceKind::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceKind::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceKind::kAnd:
      return c10d::ReduceOp::BAND;
    case ReduceKind::kOr:
      return c10d::ReduceOp::BOR;
    case ReduceKind::kXor:
      return c10d::ReduceOp::BXOR;
    case ReduceKind::kPremultipliedSum:
      return c10d::makeNCCLPreMulSum(reduction.factor);
  }
  throw BadValue("this reduction is none of torch.distributed's");
}

at::Scalar FactorFor(double factor, at::ScalarType type) {
  // Of floats what the type has, as in the graph.
  if (!at::isIntegralType(type, /*includeBool=*/true))
    return at::scalar_tensor(factor, type).item();
  const auto whole = static_cast<int64_t>(factor);
  const int bits = 8 * static_cast<int>(c10::elementSize(type));
  if (bits == 64) return whole;
  // It may be more than fits the type, and wraps around as products do.
  const int64_t all = int64_t{1} << bits;
  const int64_t wrapped = ((whole % all) + all) % all;
  return at::isSignedType(type) && wrapped >= all / 2 ? wrapped - all : wrapped;
}

std::string NameOf(const c10d::ReduceOp& op) {
  constexpr const char* kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                    "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};
  return kNames[std::min<size_t>(op.op_, 9)];
}

std::string TextOf(const c10d::ReduceOp& op) {
  const double factor = ReductionOf(op).factor;
  return NameOf(op) + (factor == 1.0 ? "" : " " + hlo::ToString(factor));
}

}  // namespace xla_cc
