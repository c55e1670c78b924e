#include "lib/proxy/called_methods.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(CalledMethodsTest, AMethodIsUnaryWhileItsResponsesHaveOneMessage) {
  CalledMethods methods;
  EXPECT_TRUE(methods.MayIdle("/a/b")) << "it is not known";
  EXPECT_EQ(methods.ResponseBytes("/a/b"), std::nullopt);
  methods.ObserveResponse("/a/b", 1000, /*one_message=*/true);
  EXPECT_FALSE(methods.MayIdle("/a/b"));
  EXPECT_TRUE(methods.MayIdle("/a/c"));
  methods.ObserveResponse("/a/b", 1000, /*one_message=*/false);
  EXPECT_TRUE(methods.MayIdle("/a/b"));
}

TEST(CalledMethodsTest, ClientsCannotMakeMethodsWithoutEnd) {
  CalledMethods methods;
  for (int i = 0; i < 2000; ++i) methods.ObserveResponse(absl::StrCat("/a/", i), 1000, /*one_message=*/true);
  EXPECT_FALSE(methods.MayIdle("/a/1023"));
  EXPECT_TRUE(methods.MayIdle("/a/1024"));
  methods.ObserveResponse("/a/7", 1000, /*one_message=*/false);
  EXPECT_TRUE(methods.MayIdle("/a/7")) << "it goes on";
}

}  // namespace
}  // namespace sluice
