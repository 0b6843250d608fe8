#include "torch_xla_cc/distributed/host/host_reduce.h"

#include <ATen/ATen.h>

#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/errors.h"

namespace xla_cc {
namespace {

// Where values are added up: narrow floats are rounded once, at the end.
at::ScalarType WideTypeOf(at::ScalarType type) {
  if (c10::isFloat8Type(type) || type == at::kHalf || type == at::kBFloat16) return at::kFloat;
  if (type == at::kBool) return at::kByte;
  // torch has few operations on these; the lowest bits are the same.
  if (type == at::kUInt16 || type == at::kUInt32) return at::kLong;
  return type;
}

at::Tensor Combine(ReduceKind kind, const at::Tensor& a, const at::Tensor& b) {
  switch (kind) {
    case ReduceKind::kProduct:
      return a * b;
    case ReduceKind::kMin:
      return at::minimum(a, b);
    case ReduceKind::kMax:
      return at::maximum(a, b);
    case ReduceKind::kAnd:
      return at::bitwise_and(a, b);
    case ReduceKind::kOr:
      return at::bitwise_or(a, b);
    case ReduceKind::kXor:
      return at::bitwise_xor(a, b);
    default:
      return a + b;
  }
}

// Of bool, a sum is an or, and a product an and.
ReduceKind KindFor(ReduceKind kind, at::ScalarType type) {
  if (type != at::kBool) return kind;
  if (kind == ReduceKind::kSum || kind == ReduceKind::kMax) return ReduceKind::kOr;
  if (kind == ReduceKind::kProduct || kind == ReduceKind::kMin) return ReduceKind::kAnd;
  return kind;
}

}  // namespace

std::optional<c10d::ReduceOp> CarriedByGloo(const c10d::ReduceOp& op, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kInt:
    case at::kLong:
    case at::kChar:
    case at::kByte:
      break;
    default:
      return std::nullopt;
  }
  const Reduction reduction = ReductionOf(op);
  if (reduction.kind == ReduceKind::kAverage || reduction.kind == ReduceKind::kPremultipliedSum) {
    return c10d::ReduceOp(c10d::ReduceOp::SUM);
  }
  return op;
}

at::Tensor Prepared(at::Tensor x, const c10d::ReduceOp& op) {
  const Reduction reduction = ReductionOf(op);
  return reduction.factor == 1.0 ? x : x.mul_(FactorFor(reduction.factor, x.scalar_type()));
}

at::Tensor Completed(at::Tensor x, const c10d::ReduceOp& op, at::ScalarType type, int size) {
  if (ReductionOf(op).kind != ReduceKind::kAverage) return x;
  return at::isIntegralType(type, /*includeBool=*/true) ? x.div_(size, "trunc") : x.div_(size);
}

namespace {

// torch has no arithmetic on these. The bits of sums and products are those of signed numbers; for
// the order, the highest bit is turned over.
at::Tensor ReducedAsSigned(const Tensors& by_rank, const c10d::ReduceOp& op) {
  const ReduceKind kind = ReductionOf(op).kind;
  const bool ordered = kind == ReduceKind::kMin || kind == ReduceKind::kMax;
  const auto turned = [&](const at::Tensor& x) {
    return ordered ? at::bitwise_xor(x, at::Scalar(INT64_MIN)) : x;
  };
  Tensors values;
  for (const at::Tensor& x : by_rank) values.push_back(turned(x.view(at::kLong)));
  const bool average = kind == ReduceKind::kAverage;
  const c10d::ReduceOp sum(c10d::ReduceOp::SUM);
  at::Tensor y = turned(ReducedHere(values, average ? sum : op));
  if (average) {  // of numbers without a sign: half of it is divided, twice of that corrected
    const auto size = static_cast<int64_t>(by_rank.size());
    const at::Tensor half =
        at::bitwise_and(at::bitwise_right_shift(y, at::Scalar(1)), at::Scalar(INT64_MAX));
    const at::Tensor quotient = at::div(half, at::Scalar(size), "floor") * 2;
    y = quotient + (y - quotient * size).ge(size).to(at::kLong);
  }
  return y.view(at::kUInt64);
}

}  // namespace

at::Tensor ReducedHere(const Tensors& by_rank, const c10d::ReduceOp& op) {
  const Reduction reduction = ReductionOf(op);
  const at::ScalarType type = by_rank[0].scalar_type();
  if (type == at::kUInt64) return ReducedAsSigned(by_rank, op);
  const ReduceKind kind = KindFor(reduction.kind, type);
  at::Tensor sum;
  for (const at::Tensor& value : by_rank) {
    at::Tensor wide = value.to(WideTypeOf(type));
    if (reduction.factor != 1.0) wide = wide * FactorFor(reduction.factor, type);
    sum = sum.defined() ? Combine(kind, sum, wide) : wide;
  }
  if (at::isIntegralType(type, /*includeBool=*/false)) sum = sum.to(type).to(WideTypeOf(type));
  sum = Completed(sum.is_alias_of(by_rank[0]) ? sum.clone() : sum, op, type,
                  static_cast<int>(by_rank.size()));
  return sum.to(type);
}

}  // namespace xla_cc
