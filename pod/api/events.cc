// PJRT_Error_*, PJRT_Event_*, PJRT_Plugin_*
#include "pod/abi/client.h"
#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

abi::Error* ErrorOf(const Occurrence::Outcome& outcome) {
  return outcome ? new abi::Error{*outcome} : nullptr;
}

void ErrorDestroy(abi::OfArgs<abi::Error>& args) { delete args.thing; }

void ErrorMessage(abi::ErrorMessageArgs& args) {
  args.message = args.error->failure.message().data();
  args.size = args.error->failure.message().size();
}

void ErrorGetCode(abi::GetArgs<const abi::Error, abi::Code>& args) {
  args.value = args.thing->failure.code();
}

void PluginAttributes(abi::PluginAttributesArgs& args) {
  args.attributes = nullptr;
  args.size = 0;
}

void EventDestroy(abi::OfArgs<abi::Event>& args) { delete args.thing; }

void EventIsReady(abi::GetArgs<abi::Event, bool>& args) {
  args.value = args.thing->occurrence->HasHappened();
}

// These two return the event's own error.
void EventError(abi::OfArgs<abi::Event>& args) {
  if (const auto outcome = args.thing->occurrence->Wait()) throw *outcome;
}

void EventOnReady(abi::EventOnReadyArgs& args) {
  args.event->occurrence->Then(
      [callback = args.callback, argument = args.argument](const Occurrence::Outcome& outcome) {
        callback(ErrorOf(outcome), argument);
      });
}

}  // namespace

void AddEvents(Table& table) {
  Add<kError_Destroy, abi::OfArgs<abi::Error>, ErrorDestroy>(table);
  Add<kError_Message, abi::ErrorMessageArgs, ErrorMessage>(table);
  Add<kError_GetCode, abi::GetArgs<const abi::Error, abi::Code>, ErrorGetCode>(table);
  table.functions[kPlugin_Initialize] = [](void*) -> abi::Error* { return nullptr; };
  Add<kPlugin_Attributes, abi::PluginAttributesArgs, PluginAttributes>(table);
  Add<kEvent_Destroy, abi::OfArgs<abi::Event>, EventDestroy>(table);
  Add<kEvent_IsReady, abi::GetArgs<abi::Event, bool>, EventIsReady>(table);
  Add<kEvent_Error, abi::OfArgs<abi::Event>, EventError>(table);
  Add<kEvent_Await, abi::OfArgs<abi::Event>, EventError>(table);
  Add<kEvent_OnReady, abi::EventOnReadyArgs, EventOnReady>(table);
}

}  // namespace xla_cc::pod
