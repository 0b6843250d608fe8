#include "lowering/collective.h"

#include <sstream>
#include <type_traits>

namespace xla_cc {
namespace {

// Writes each field as name=value.
class Printer {
 public:
  Printer(bool with_groups, bool all_groups) : with_groups_(with_groups), all_groups_(all_groups) {}
  std::string str() const { return out_.str(); }

  void operator()(const char* name, int64_t value) { Begin(name) << value; }
  void operator()(const char* name, const std::optional<int64_t>& value) {
    if (value) Begin(name) << *value;
  }
  void operator()(const char* name, ReduceKind value) { Begin(name) << Name(value); }
  void operator()(const char* name, double value) { Begin(name) << hlo::ToString(value); }
  void operator()(const char* name, const Groups& value) {
    if (all_groups_) {
      Begin(name) << (value.IsWorld() ? value.ToString() : ToString(value.list()));
    } else if (with_groups_) {
      Begin(name) << value.ToString();
    }
  }
  void operator()(const char* name, const Sizes& value) { Begin(name) << ToString(value); }
  void operator()(const char* name, const SizeMatrix& value) { Begin(name) << ToString(value); }
  void operator()(const char* name, const Pairs& value) {
    Begin(name);
    for (const auto& [source, target] : value) out_ << '(' << source << "->" << target << ')';
  }

 private:
  std::ostream& Begin(const char* name) {
    out_ << (first_ ? "" : ", ") << name << '=';
    first_ = false;
    return out_;
  }
  bool with_groups_;
  bool all_groups_;
  bool first_ = true;
  std::ostringstream out_;
};

// Whether the ranks' sizes are a field. What a rank gives and gets follows then from all groups, so
// that ranks agree on all of them.
template <class T>
bool HasSizes(const T& node) {
  bool found = false;
  T::Fields(node, [&](const char*, const auto& value) {
    using Field = std::decay_t<decltype(value)>;
    found = found || std::is_same_v<Field, Sizes> || std::is_same_v<Field, SizeMatrix>;
  });
  return found;
}

}  // namespace

Op OpFor(const Collective& collective) {
  return Visit(collective,
               [](const auto& node) { return OpOf<std::decay_t<decltype(node)>>::value; });
}

std::string ToString(const Collective& collective, bool with_groups) {
  return Visit(collective, [&](const auto& node) {
    Printer printer(with_groups, HasSizes(node));
    std::decay_t<decltype(node)>::Fields(node, printer);
    return std::string(node.kName) + "(" + printer.str() + ")";
  });
}

Groups GroupsOf(const Collective& collective) {
  Groups groups;
  Visit(collective, [&](const auto& node) {
    std::decay_t<decltype(node)>::Fields(node, [&](const char*, const auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Groups>) groups = value;
    });
  });
  return groups;
}

}  // namespace xla_cc
