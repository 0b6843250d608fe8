// PJRT_Executable_*: what is known of a program, and what the device process is asked for.
#include <cstring>

#include "pod/abi/executable.h"
#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

constexpr const char* kMemoryKind = "device";
constexpr std::string_view kOptimizedFormat = "hlo_with_config";

using abi::Executable;

const ProgramFacts& FactsOf(const Executable* executable) { return executable->program->facts; }

std::string Ask(const Executable& executable, Kind kind) {
  const RemoteProgram& program = *executable.program;
  return program.client->link->Call(kind, Writer().Int(program.id));
}

void Destroy(abi::OfArgs<Executable>& args) { delete args.thing; }

void Name(abi::GetTextArgs<Executable>& args) {
  args.elements = FactsOf(args.thing).name.data();
  args.size = FactsOf(args.thing).name.size();
}

void Fingerprint(abi::GetTextArgs<Executable>& args) {
  args.elements = FactsOf(args.thing).fingerprint.data();
  args.size = FactsOf(args.thing).fingerprint.size();
}

void LoadedFingerprint(abi::GetTextArgs<abi::LoadedExecutable>& args) {
  if (args.thing->program == nullptr) {
    throw Failure(abi::Code::kFailedPrecondition, "the program was deleted");
  }
  const std::string& fingerprint = args.thing->program->facts.fingerprint;
  args.elements = fingerprint.data();
  args.size = fingerprint.size();
}

void NumReplicas(abi::GetArgs<Executable, size_t>& args) {
  args.value = static_cast<size_t>(FactsOf(args.thing).num_replicas);
}

void NumPartitions(abi::GetArgs<Executable, size_t>& args) {
  args.value = static_cast<size_t>(FactsOf(args.thing).num_partitions);
}

void NumOutputs(abi::GetArgs<Executable, size_t>& args) {
  args.value = FactsOf(args.thing).output_types.size();
}

void CodeSize(abi::GetArgs<Executable, int64_t>& args) {
  args.value = FactsOf(args.thing).code_size;
}

void OutputTypes(abi::GetListArgs<Executable, const abi::Type>& args) {
  args.elements = FactsOf(args.thing).output_types.data();
  args.size = FactsOf(args.thing).output_types.size();
}

void OutputDimensions(abi::OutputDimensionsArgs& args) {
  const ProgramFacts& facts = FactsOf(args.executable);
  args.num_outputs = facts.output_types.size();
  args.dims = facts.flat_dims.data();
  args.dim_sizes = facts.ranks.data();
}

void OutputMemoryKinds(abi::OutputMemoryKindsArgs& args) {
  const size_t count = FactsOf(args.executable).output_types.size();
  args.executable->memory_kinds.assign(count, kMemoryKind);
  args.executable->memory_kind_sizes.assign(count, std::strlen(kMemoryKind));
  args.num_outputs = count;
  args.kinds = args.executable->memory_kinds.data();
  args.kind_sizes = args.executable->memory_kind_sizes.data();
}

void OptimizedProgram(abi::OptimizedProgramArgs& args) {
  const std::string& module = FactsOf(args.executable).module;
  abi::Program& program = *args.program;
  program.format = kOptimizedFormat.data();
  program.format_size = kOptimizedFormat.size();
  if (program.code != nullptr) {
    if (program.code_size < module.size()) {
      throw Failure(abi::Code::kInvalidArgument,
                    "PJRT_Executable_OptimizedProgram: the program has " +
                        std::to_string(module.size()) + " bytes, the caller has room for " +
                        std::to_string(program.code_size));
    }
    std::memcpy(program.code, module.data(), module.size());
  }
  program.code_size = module.size();
}

void Serialize(abi::SerializeArgs<const Executable>& args) {
  auto* bytes = new std::string(Ask(*args.thing, Kind::kSerialize));
  args.bytes = bytes->data();
  args.size = bytes->size();
  args.owner = bytes;
  args.free = [](void* owner) { delete static_cast<std::string*>(owner); };
}

void CostAnalysis(abi::GetSizedArgs<Executable, const abi::NamedValue>& args) {
  const std::string body = Ask(*args.thing, Kind::kCostAnalysis);
  Reader answer(body);
  std::vector<std::string> names;
  std::vector<float> figures;
  for (int64_t left = answer.Int(); left > 0; --left) {
    names.emplace_back(answer.Text());
    figures.push_back(std::stof(std::string(answer.Text())));
  }
  Executable& executable = *args.thing;
  executable.cost_names = std::move(names);
  executable.costs.clear();
  for (size_t i = 0; i < figures.size(); ++i) {
    abi::NamedValue& cost = executable.costs.emplace_back();
    cost = {};
    cost.head.struct_size = sizeof(cost);
    cost.name = executable.cost_names[i].data();
    cost.name_size = executable.cost_names[i].size();
    cost.kind = abi::NamedValue::Kind::kFloat;
    cost.float_value = figures[i];
    cost.size = 1;
  }
  args.elements = executable.costs.data();
  args.size = executable.costs.size();
}

void CompiledMemory(abi::CompiledMemoryStatsArgs& args) {
  const std::string body = Ask(*args.executable, Kind::kCompiledMemory);
  Reader answer(body);
  for (int64_t& figure : args.figures) figure = answer.Int();
}

}  // namespace

void AddProgramFacts(Table& table) {
  Add<kExecutable_Destroy, abi::OfArgs<Executable>, Destroy>(table);
  Add<kExecutable_Name, abi::GetTextArgs<Executable>, Name>(table);
  Add<kExecutable_Fingerprint, abi::GetTextArgs<Executable>, Fingerprint>(table);
  Add<kLoadedExecutable_Fingerprint, abi::GetTextArgs<abi::LoadedExecutable>, LoadedFingerprint>(
      table);
  Add<kExecutable_NumReplicas, abi::GetArgs<Executable, size_t>, NumReplicas>(table);
  Add<kExecutable_NumPartitions, abi::GetArgs<Executable, size_t>, NumPartitions>(table);
  Add<kExecutable_NumOutputs, abi::GetArgs<Executable, size_t>, NumOutputs>(table);
  Add<kExecutable_SizeOfGeneratedCodeInBytes, abi::GetArgs<Executable, int64_t>, CodeSize>(table);
  Add<kExecutable_OutputElementTypes, abi::GetListArgs<Executable, const abi::Type>, OutputTypes>(
      table);
  Add<kExecutable_OutputDimensions, abi::OutputDimensionsArgs, OutputDimensions>(table);
  Add<kExecutable_OutputMemoryKinds, abi::OutputMemoryKindsArgs, OutputMemoryKinds>(table);
  Add<kExecutable_OptimizedProgram, abi::OptimizedProgramArgs, OptimizedProgram>(table);
  Add<kExecutable_Serialize, abi::SerializeArgs<const Executable>, Serialize>(table);
  Add<kExecutable_GetCostAnalysis, abi::GetSizedArgs<Executable, const abi::NamedValue>,
      CostAnalysis>(table);
  Add<kExecutable_GetCompiledMemoryStats, abi::CompiledMemoryStatsArgs, CompiledMemory>(table);
}

}  // namespace xla_cc::pod
