// A rank and a device process that does not do what it should: how that is told, and that it ends.
#include "pod/link.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace xla_cc::pod {
namespace {

std::string MessageOf(Link& link) {
  try {
    link.Call(Kind::kStart, Writer());
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), abi::Code::kUnavailable);
    return failure.message();
  }
  return "no error";
}

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(Link, CannotStart) {
  try {
    Link link({"/nowhere/python"}, "the device");
    FAIL() << "it started";
  } catch (const Failure& failure) {
    EXPECT_NE(failure.message().find("/nowhere/python: No such file"), std::string::npos);
  }
}

TEST(Link, TellsHowItEnded) {
  Link ended(Shell("exit 3"), "the device");
  EXPECT_NE(MessageOf(ended).find("the device, process "), std::string::npos);
  EXPECT_NE(MessageOf(ended).find("ended with status 3"), std::string::npos);
  Link killed(Shell("kill -9 $$"), "the device");
  EXPECT_NE(MessageOf(killed).find("was killed by signal 9"), std::string::npos);
  EXPECT_TRUE(killed.lost().has_value());
}

TEST(Link, NonsenseIsAnEnd) {
  // A whole message, kReleased (65), that has no number; it does not end by itself.
  Link link(Shell("{ head -c 8 /dev/zero; printf A; head -c 15 /dev/zero; } >&3; exec sleep 60"),
            "the device");
  EXPECT_NE(MessageOf(link).find("the device, process "), std::string::npos);
}

TEST(Link, DoesNotWaitLongForOneThatStays) {
  const auto began = std::chrono::steady_clock::now();
  {
    Link link(Shell("trap '' TERM; sleep 60 & wait"), "the device");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST(Link, DoesNotWaitForOneThatIsStopped) {
  Link link(Shell("kill -STOP $$; sleep 60"), "the device");
  link.SetLimit(std::chrono::seconds(2));
  EXPECT_NE(MessageOf(link).find("was stopped (SIGSTOP) for 2 s"), std::string::npos);
}

TEST(Link, DoesNotSendForEverToOneThatIsStopped) {
  Link link(Shell("kill -STOP $$; sleep 60"), "the device");
  link.SetLimit(std::chrono::seconds(2));
  const Writer large = Writer().Text(std::string(1 << 16, 'x'));
  for (int i = 0; i < 200 && !link.lost(); ++i) link.Say(Kind::kPut, large);
  EXPECT_NE(MessageOf(link).find("was stopped (SIGSTOP) for 2 s"), std::string::npos);
}

TEST(Link, LeavesWhenItHasEnded) {
  Link link(Shell("head -c 24 <&3 >/dev/null"), "the device");  // ends when the message has come
  EXPECT_TRUE(link.Leave(std::chrono::seconds(10)));
}

}  // namespace
}  // namespace xla_cc::pod
