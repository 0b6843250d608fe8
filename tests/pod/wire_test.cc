// Messages and what carries them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "pod/wire/channel.h"

namespace xla_cc::pod {
namespace {

TEST(Message, ReadsWhatWasWritten) {
  Writer writer;
  writer.Int(-5).Text("word").Ints({1, int64_t{1} << 62, -3}).Text({}).Ints({}).Int(7);
  Reader reader(writer.bytes());
  EXPECT_EQ(reader.Int(), -5);
  EXPECT_EQ(reader.Text(), "word");
  EXPECT_EQ(reader.Ints(), (std::vector<int64_t>{1, int64_t{1} << 62, -3}));
  EXPECT_EQ(reader.Text(), "");
  EXPECT_TRUE(reader.Ints().empty());
  EXPECT_EQ(reader.Int(), 7);
}

TEST(Message, EndsTooEarly) {
  Writer writer;
  writer.Int(1).Text("word");
  const auto read = [](std::string_view bytes) {
    Reader reader(bytes);
    reader.Int();
    reader.Text();
  };
  EXPECT_NO_THROW(read(writer.bytes()));
  for (size_t size = 0; size < writer.bytes().size(); ++size) {
    EXPECT_THROW(read(std::string_view(writer.bytes()).substr(0, size)), Failure);
  }
  for (const int64_t size : {int64_t{-1}, int64_t{1} << 61, int64_t{9}}) {
    Writer list;
    list.Int(size).Int(0);
    EXPECT_THROW(Reader(list.bytes()).Ints(), Failure);
    EXPECT_THROW(Reader(list.bytes()).Text(), Failure);
  }
}

struct Ends {
  Ends() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0); }
  int sockets[2];
};

TEST(Channel, LargeMessagesFromManyThreads) {
  Ends ends;
  Channel here(ends.sockets[0]), there(ends.sockets[1]);
  constexpr int kThreads = 4, kMessages = 20;
  std::vector<std::thread> senders;
  for (int thread = 0; thread < kThreads; ++thread) {
    senders.emplace_back([&here, thread] {
      const std::string body(1 << 18, static_cast<char>('a' + thread));
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_TRUE(here.Send({0, Kind::kPut, 0, static_cast<uint64_t>(thread)}, body));
      }
    });
  }
  for (int i = 0; i < kThreads * kMessages; ++i) {
    const auto received = there.Receive();
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->head.kind, Kind::kPut);
    const std::string expected(1 << 18, static_cast<char>('a' + received->head.request));
    EXPECT_TRUE(received->body == expected) << "messages of two threads are mixed";
  }
  for (std::thread& sender : senders) sender.join();
}

TEST(Channel, TellsThatTheOtherHasGone) {
  Ends ends;
  auto there = std::make_unique<Channel>(ends.sockets[1]);
  Channel here(ends.sockets[0]);
  std::thread closer([&] { there.reset(); });
  EXPECT_FALSE(here.Receive().has_value());
  closer.join();
  EXPECT_FALSE(here.Send({}, "words"));  // and no signal
}

TEST(Channel, ShutWakesWhoReceives) {
  Ends ends;
  Channel here(ends.sockets[0]), there(ends.sockets[1]);
  std::thread receiver([&] { EXPECT_FALSE(here.Receive().has_value()); });
  here.Shut();
  receiver.join();
}

}  // namespace
}  // namespace xla_cc::pod
