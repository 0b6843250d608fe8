#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/bind.h"
#include "torch_xla_cc/graph/fallback_policy.h"
#include "torch_xla_cc/graph/host_copies.h"
#include "torch_xla_cc/graph/target.h"

namespace xla_cc {
namespace {

// Throws on a name that stands for nothing.
template <class Enum>
Enum Named(const char* what, const std::string& name,
           std::optional<Enum> (*from_name)(const std::string&)) {
  const std::optional<Enum> value = from_name(name);
  if (!value) throw BadValue(std::string("no ") + what + " is called '" + name + "'");
  return *value;
}

std::optional<Op> OpFromName(const std::string& text) {
#define COLLECTIVE(Type, name) \
  if (text == #name) return Op::k##Type;
#include "lowering/collectives.def"
#undef COLLECTIVE
  return std::nullopt;
}

std::optional<Rule> RuleFromName(const std::string& name) {
  for (const Rule rule : {Rule::kNative, Rule::kFallback}) {
    if (name == Name(rule)) return rule;
  }
  return std::nullopt;
}

}  // namespace

void BindCapabilities(py::module_& m) {
  m.def("set_forced_rule", [](const std::optional<std::string>& name) {
    SetForcedRule(name ? std::optional(Named("rule", *name, &RuleFromName)) : std::nullopt);
  });
  m.def("choose",
        [](const std::string& op, const std::string& target_name, int64_t world_size, int64_t type,
           const std::optional<std::string>& reduce, const std::string& form, int64_t group_size) {
          const Result<Target> target = ParseTarget(target_name, world_size);
          if (!target.ok()) throw BadValue(target.status().message());
          Query query{
              Named("op", op, &OpFromName),       target.value(), TypeOfNumber(type), std::nullopt,
              Named("form", form, &FormFromName), group_size};
          if (reduce)
            query.reduce = Reduction{Named("kind", *reduce, &ReduceKindFromName)}.InstructionKind();
          const Choice choice = Choose(query);
          return std::tuple{Name(choice.rule), choice.why, choice.lists};
        });
  m.def("register_capability",
        [](const std::string& device, const std::string& op, const std::vector<int64_t>& types,
           const std::vector<std::string>& kinds, const std::vector<std::string>& forms,
           bool native, const std::string& why) {
          // With the kind's own name: cuda is gpu.
          const Result<Target> target = ParseTarget(device, 1);
          if (!target.ok()) throw BadValue(target.status().message());
          Registration entry{
              target.value().device, Named("op", op, &OpFromName), {}, {}, {}, native, why};
          for (int64_t type : types) entry.types.push_back(TypeOfNumber(type));
          for (const auto& kind : kinds) {
            entry.kinds.push_back(Named("kind", kind, &ReduceKindFromName));
          }
          for (const auto& form : forms) entry.forms.push_back(Named("form", form, &FormFromName));
          const int64_t handle = Register(entry);
          PlanCache::Get().Clear();
          return handle;
        });
  m.def("unregister_capability", [](int64_t handle) {
    const bool was_there = Unregister(handle);
    PlanCache::Get().Clear();
    return was_there;
  });
  m.def("set_fallback",
        [](const std::string& name) { SetPolicy(Named("policy", name, &PolicyFromName)); });
  m.def("set_thread_fallback", [](const std::optional<std::string>& name) {
    SetThreadPolicy(name ? std::optional(Named("policy", *name, &PolicyFromName)) : std::nullopt);
  });
  m.def("thread_fallback", []() -> std::optional<std::string> {
    const auto policy = ThreadPolicy();
    return policy ? std::optional(Name(*policy)) : std::nullopt;
  });
  m.def("fallback", [] { return Name(GetPolicy()); });
  m.def("through_host", [](const std::string& op, int64_t channel, const at::Tensor& tensor) {
    ThroughHost(Named("op", op, &OpFromName), channel, tensor);
  });
}

}  // namespace xla_cc
