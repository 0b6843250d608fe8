// PJRT_TopologyDescription_* of a client.
#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

using abi::Topology;

void OfClient(abi::GetArgs<abi::Client, Topology*>& args) { args.value = &args.thing->topology; }

void PlatformName(abi::GetTextArgs<const Topology>& args) {
  args.elements = args.thing->platform_name.data();
  args.size = args.thing->platform_name.size();
}

void PlatformVersion(abi::GetTextArgs<Topology>& args) {
  args.elements = args.thing->platform_version.data();
  args.size = args.thing->platform_version.size();
}

void Descriptions(abi::GetListArgs<const Topology, abi::DeviceDescription* const>& args) {
  args.elements = args.thing->list.data();
  args.size = args.thing->list.size();
}

void Attributes(abi::GetListArgs<Topology, const abi::NamedValue>& args) {
  args.elements = nullptr;
  args.size = 0;
}

}  // namespace

void AddTopology(Table& table) {
  Add<kClient_TopologyDescription, abi::GetArgs<abi::Client, Topology*>, OfClient>(table);
  Add<kTopologyDescription_PlatformName, abi::GetTextArgs<const Topology>, PlatformName>(table);
  Add<kTopologyDescription_PlatformVersion, abi::GetTextArgs<Topology>, PlatformVersion>(table);
  Add<kTopologyDescription_GetDeviceDescriptions,
      abi::GetListArgs<const Topology, abi::DeviceDescription* const>, Descriptions>(table);
  Add<kTopologyDescription_Attributes, abi::GetListArgs<Topology, const abi::NamedValue>,
      Attributes>(table);
}

}  // namespace xla_cc::pod
