#include "torch_xla_cc/distributed/host/mail.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace xla_cc {
namespace {

constexpr Timeout kLong{60'000};

TEST(Mail, EachReceiveGetsThatOfItsNumberWhateverComesFirst) {
  Mail<std::unique_ptr<int>> mail;  // what is moved, and not copied
  constexpr int kTags = 3;
  constexpr int kEach = 100;
  std::vector<std::thread> threads;
  for (int tag = 0; tag < kTags; ++tag) {
    for (int i = 0; i < kEach; ++i) EXPECT_EQ(mail.Ask(tag), static_cast<uint64_t>(i));
    threads.emplace_back([&mail, tag] {
      for (int i = 0; i < kEach; ++i) mail.Put(tag, std::make_unique<int>(1000 * tag + i));
    });
    for (const int first : {0, 1}) {  // two threads of receives, one from the end
      threads.emplace_back([&mail, tag, first] {
        for (int i = first; i < kEach; i += 2) {
          const int number = first == 0 ? i : kEach - i;
          EXPECT_EQ(*mail.Take(tag, number, kLong), 1000 * tag + number);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mail, WhatDoesNotComeIsAnError) {
  Mail<int> mail;
  mail.Put(1, 7);
  EXPECT_THROW(mail.Take(2, mail.Ask(2), Timeout(5)), std::runtime_error);
  EXPECT_EQ(mail.Take(1, mail.Ask(1), Timeout(0)), 7);  // it is there
}

}  // namespace
}  // namespace xla_cc
