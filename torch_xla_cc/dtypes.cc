#include "torch_xla_cc/dtypes.h"

#include <cctype>
#include <optional>

#include "lowering/errors.h"
#include "torch_xla_cc/errors.h"

namespace xla_cc {
namespace {

std::optional<hlo::ElementType> ElementTypeOf(at::ScalarType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class, torch) \
  case at::ScalarType::torch:                                   \
    return hlo::ElementType::enumerator;
#include "lowering/hlo/element_types.def"
#undef TYPE
    default:
      return std::nullopt;
  }
}

}  // namespace

hlo::Shape ShapeOf(const char* op, size_t index, const at::Tensor& tensor) {
  const std::string operand = "operand " + std::to_string(index);
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw BadValue(Refuse({"A2", op, operand, tensor.defined() ? tensor.toString() : "undefined",
                           "a dense tensor", "Call .to_dense() or .dequantize() first"})
                       .message());
  }
  const auto type = ElementTypeOf(tensor.scalar_type());
  if (!type) {
    throw BadValue(Refuse({"A3", op, operand, toString(tensor.scalar_type()),
                           "of an element type that XLA has", "Convert or view it as another type"})
                       .message());
  }
  return {*type, tensor.sizes().vec()};
}

std::string DtypeText(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    default: {  // the same in lower case
      std::string name = c10::toString(x.scalar_type());
      for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
      return name;
    }
  }
}

std::string ShapeText(const at::Tensor& x) {
  return DtypeText(x) + "[" + hlo::ToString(x.sizes().vec()) + "]";
}

}  // namespace xla_cc
