#include "lib/grpc_wire/message_buffers.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

std::string OfCapacity(size_t bytes) {
  std::string message;
  message.reserve(bytes);
  message = "something";
  return message;
}

TEST(MessageBuffersTest, AMessageOfTheSameSizeGetsTheMemoryBack) {
  MessageBuffers buffers;
  std::string message = OfCapacity(10'000);
  const char* const memory = message.data();
  buffers.Give(std::move(message));
  EXPECT_GE(buffers.kept_bytes(), 10'000u);
  const std::string taken = buffers.Take(10'000);
  EXPECT_EQ(taken.data(), memory);
  EXPECT_EQ(taken, "");
  EXPECT_EQ(buffers.kept_bytes(), 0u);
}

TEST(MessageBuffersTest, WhatItReturnsHasRoomAndIsLessThanFourTimesTooLarge) {
  for (size_t kept = 4096; kept < 200'000; kept += 3'331) {
    for (size_t wanted = 1; wanted < 200'000; wanted += 2'777) {
      MessageBuffers buffers;
      buffers.Give(OfCapacity(kept));
      const std::string taken = buffers.Take(wanted);
      if (buffers.kept_bytes() > 0) continue;  // the kept buffer does not fit
      EXPECT_GE(taken.capacity(), wanted);
      EXPECT_LT(taken.capacity(), 4 * wanted);
    }
  }
}

TEST(MessageBuffersTest, WithoutOneThatFitsItReturnsNoMemory) {
  MessageBuffers buffers;
  EXPECT_EQ(buffers.Take(100'000).capacity(), std::string().capacity());
  buffers.Give(OfCapacity(50'000));
  EXPECT_EQ(buffers.Take(100'000).capacity(), std::string().capacity());
  EXPECT_EQ(buffers.Take(5'000).capacity(), std::string().capacity());
  EXPECT_GE(buffers.kept_bytes(), 50'000u);
}

TEST(MessageBuffersTest, ShortMessagesAreNotKept) {
  MessageBuffers buffers;
  buffers.Give("short");
  buffers.Give(std::string());
  EXPECT_EQ(buffers.kept_bytes(), 0u);
}

TEST(MessageBuffersTest, KeepsNoMoreThanItsBoundAndThenBeginsAnew) {
  MessageBuffers buffers;
  constexpr size_t kBytes = size_t{1} << 20;
  for (int i = 0; i < 100; ++i) {
    buffers.Give(OfCapacity(kBytes));
    EXPECT_LE(buffers.kept_bytes(), MessageBuffers::kMostBytes);
    EXPECT_GE(buffers.kept_bytes(), kBytes);
  }
  buffers.Give(OfCapacity(MessageBuffers::kMostBytes + 1));
  EXPECT_LE(buffers.kept_bytes(), MessageBuffers::kMostBytes);
}

}  // namespace
}  // namespace sluice
