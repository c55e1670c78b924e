#include "lib/telemetry/status_page.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusPageTest, IsTheFileByteForByte) {
  std::ifstream file(SLUICE_STATUS_PAGE);
  const std::string html{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_THAT(html, HasSubstr("<!doctype html>"));
  EXPECT_EQ(StatusPage().body(), html);
  EXPECT_EQ(StatusPage().content_type, "text/html; charset=utf-8");
}

TEST(StatusPageTest, NamesNoOtherServer) {
  std::string html = StatusPage().body();
  // The SVG namespace is a name, and is not loaded.
  const std::string svg = "http://www.w3.org/2000/svg";
  for (size_t at = html.find(svg); at != std::string::npos; at = html.find(svg)) html.erase(at, svg.size());
  EXPECT_THAT(html, Not(HasSubstr("//www")));
  EXPECT_THAT(html, Not(HasSubstr("http:")));
  EXPECT_THAT(html, Not(HasSubstr("https:")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
}

TEST(StatusPageTest, IsSmall) {
  EXPECT_LT(StatusPage().body().size(), 36'000U);
}

}  // namespace
}  // namespace sluice
