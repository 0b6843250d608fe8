// The table of functions, as torch_xla sees it, without a client.
#include <gtest/gtest.h>

#include "pod/abi/client.h"
#include "pod/entry.h"

extern "C" const void* GetPjrtApi();

namespace xla_cc::pod {
namespace {

const Table& TheTable() { return *static_cast<const Table*>(GetPjrtApi()); }

std::string MessageOf(abi::Error* error) {
  abi::ErrorMessageArgs message = {{sizeof(message), nullptr}, error, nullptr, 0};
  TheTable().functions[kError_Message](&message);
  std::string text(message.message, message.size);
  abi::OfArgs<abi::Error> destroy = {{sizeof(destroy), nullptr}, error};
  TheTable().functions[kError_Destroy](&destroy);
  return text;
}

TEST(Table, IsThatOfItsVersion) {
  const Table& table = TheTable();
  EXPECT_EQ(table.head.struct_size, 960u);
  EXPECT_EQ(table.version.major, 0);
  EXPECT_EQ(table.version.minor, 75);
  EXPECT_EQ(int{kFunctions}, 115);
  for (const EntryPoint function : table.functions) EXPECT_NE(function, nullptr);
}

TEST(Table, WhatIsLeftOutSaysItsName) {
  abi::Head args = {sizeof(args), nullptr};
  abi::Error* error = TheTable().functions[kClient_DmaMap](&args);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->failure.code(), abi::Code::kUnimplemented);
  EXPECT_EQ(MessageOf(error), "PJRT_Client_DmaMap is not implemented by the pod");
}

TEST(Table, ArgumentsOfAnotherVersionAreRefused) {
  abi::ClientCreateArgs args = {};
  args.head.struct_size = 40;
  abi::Error* error = TheTable().functions[kClient_Create](&args);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(MessageOf(error).find("have 40 bytes, the pod needs 72"), std::string::npos);
}

TEST(Table, AClientWithoutACommandIsRefused) {
  abi::ClientCreateArgs args = {};
  args.head.struct_size = sizeof(args);
  abi::Error* error = TheTable().functions[kClient_Create](&args);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(MessageOf(error).find("`command` is missing"), std::string::npos);
}

}  // namespace
}  // namespace xla_cc::pod
