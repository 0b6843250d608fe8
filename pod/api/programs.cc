// Programs: compiling, loading, running.
#include <algorithm>

#include "pod/abi/executable.h"
#include "pod/api/buffers.h"
#include "pod/element_type.h"
#include "pod/entry.h"

namespace xla_cc::pod {

RemoteProgram::~RemoteProgram() { client->link->Say(Kind::kUnload, Writer().Int(id)); }

namespace {

ProgramFacts ReadFacts(Reader answer) {
  ProgramFacts facts;
  facts.name = answer.Text();
  facts.fingerprint = answer.Text();
  facts.module = answer.Text();
  facts.num_replicas = answer.Int();
  facts.num_partitions = answer.Int();
  facts.code_size = answer.Int();
  facts.donated = answer.Ints();
  for (const int64_t type : answer.Ints()) {
    facts.output_types.push_back(static_cast<abi::Type>(type));
    facts.output_dims.push_back(answer.Ints());
    const auto& dims = facts.output_dims.back();
    facts.flat_dims.insert(facts.flat_dims.end(), dims.begin(), dims.end());
    facts.ranks.push_back(dims.size());
  }
  return facts;
}

abi::LoadedExecutable* Build(abi::Client* client, Kind kind, int64_t id, const Writer& body) {
  client->FlushFreed();
  const std::string answer = client->link->Call(kind, body);
  auto program = std::make_shared<RemoteProgram>(client, id, ReadFacts(Reader(answer)));
  return new abi::LoadedExecutable{std::move(program), client};
}

void Compile(abi::CompileArgs& args) {
  const abi::Program& program = *args.program;
  const int64_t id = args.client->NextId();
  Writer body;
  body.Int(id)
      .Text({program.format, program.format_size})
      .Text({program.code, program.code_size})
      .Text({args.options, args.options_size});
  args.executable = Build(args.client, Kind::kCompile, id, body);
}

void Load(abi::LoadArgs& args) {
  const int64_t id = args.client->NextId();
  Writer body;
  body.Int(id).Text({args.bytes, args.size}).Text({args.options, args.options_size});
  args.executable = Build(args.client, Kind::kLoad, id, body);
}

void Destroy(abi::OfArgs<abi::LoadedExecutable>& args) { delete args.thing; }

void Delete(abi::OfArgs<abi::LoadedExecutable>& args) { args.thing->program.reset(); }

void IsDeleted(abi::GetArgs<abi::LoadedExecutable, bool>& args) {
  args.value = args.thing->program == nullptr;
}

const std::shared_ptr<RemoteProgram>& Living(const abi::LoadedExecutable& executable) {
  if (executable.program == nullptr) {
    throw Failure(abi::Code::kFailedPrecondition, "the program was deleted");
  }
  return executable.program;
}

void GetExecutable(abi::GetArgs<abi::LoadedExecutable, abi::Executable*>& args) {
  args.value = new abi::Executable{Living(*args.thing), {}, {}, {}, {}};
}

void AddressableDevices(abi::GetListArgs<abi::LoadedExecutable, abi::Device* const>& args) {
  args.elements = &args.thing->client->own;
  args.size = 1;
}

// The buffers whose memory the outputs may take are gone with the call.
void Donate(const ProgramFacts& facts, const abi::ExecuteOptions& options,
            abi::Buffer* const* arguments, size_t count) {
  const int64_t* const kept = options.non_donatable;
  const int64_t* const end = kept + options.num_non_donatable;
  for (const int64_t parameter : facts.donated) {
    if (static_cast<size_t>(parameter) < count && std::find(kept, end, parameter) == end) {
      abi::Buffer& buffer = *arguments[parameter];
      if (!buffer.deleted.exchange(true)) {
        buffer.client->Free(buffer.id, BytesOf(buffer.type, buffer.dims));
      }
    }
  }
}

void Execute(abi::ExecuteArgs& args) {
  if (args.options->num_send_ops != 0 || args.options->num_recv_ops != 0) {
    throw Failure(abi::Code::kUnimplemented,
                  "PJRT_LoadedExecutable_Execute with send and recv callbacks is not implemented "
                  "by the pod");
  }
  if (args.num_devices != 1) {
    throw Failure(abi::Code::kInvalidArgument, "PJRT_LoadedExecutable_Execute on " +
                                                   std::to_string(args.num_devices) +
                                                   " devices: the pod has one in each process");
  }
  const auto program = Living(*args.executable);
  abi::Client* client = args.executable->client;
  std::vector<int64_t> inputs, outputs;
  for (size_t i = 0; i < args.num_arguments; ++i) {
    RequireLiving(*args.arguments[0][i], "running a program on");
    inputs.push_back(args.arguments[0][i]->id);
  }
  const abi::ExecuteOptions& options = *args.options;
  const std::vector<int64_t> kept(options.non_donatable,
                                  options.non_donatable + options.num_non_donatable);
  const ProgramFacts& facts = program->facts;
  for (size_t i = 0; i < facts.output_types.size(); ++i) outputs.push_back(client->NextId());

  auto done = std::make_shared<Occurrence>();
  client->FlushFreed();
  Writer body;
  body.Int(program->id).Ints(inputs).Ints(outputs).Ints(kept);
  client->link->Ask(Kind::kExecute, body,
                    [done](const Link::Answer& answer) { done->Happen(answer.failure); });
  Donate(facts, options, args.arguments[0], args.num_arguments);
  for (size_t i = 0; i < outputs.size(); ++i) {
    args.outputs[0][i] =
        NewBuffer(client, outputs[i], facts.output_types[i], facts.output_dims[i], done);
  }
  if (args.done != nullptr) args.done[0] = new abi::Event{done};
}

}  // namespace

void AddPrograms(Table& table) {
  Add<kClient_Compile, abi::CompileArgs, Compile>(table);
  Add<kExecutable_DeserializeAndLoad, abi::LoadArgs, Load>(table);
  Add<kLoadedExecutable_Destroy, abi::OfArgs<abi::LoadedExecutable>, Destroy>(table);
  Add<kLoadedExecutable_Delete, abi::OfArgs<abi::LoadedExecutable>, Delete>(table);
  Add<kLoadedExecutable_IsDeleted, abi::GetArgs<abi::LoadedExecutable, bool>, IsDeleted>(table);
  Add<kLoadedExecutable_GetExecutable, abi::GetArgs<abi::LoadedExecutable, abi::Executable*>,
      GetExecutable>(table);
  Add<kLoadedExecutable_AddressableDevices,
      abi::GetListArgs<abi::LoadedExecutable, abi::Device* const>, AddressableDevices>(table);
  Add<kLoadedExecutable_Execute, abi::ExecuteArgs, Execute>(table);
}

}  // namespace xla_cc::pod
