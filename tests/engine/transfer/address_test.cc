#include "engine/transfer/address.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(Address, IsReadAndWritten) {
  for (const char* text : {"127.0.0.1:9000", "host.example:0", "[::1]:65535", "unix:/run/p.sock"}) {
    const auto address = ParseAddress(text, "--flag");
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->Text(), text);
    EXPECT_EQ(address->is_unix(), std::string(text).starts_with("unix:"));
  }
  EXPECT_EQ(ParseAddress("[::1]:80", "--flag")->host, "::1");
}

TEST(Address, IsRefusedByNameAndWithTheWayOut) {
  for (const char* text : {"", "host", ":80", "host:", "host:-1", "host:65536", "host:8o", "::1:80",
                           "[]:80", "unix:", "host:80:81"}) {
    const auto address = ParseAddress(text, "--flag");
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kUsage);
    EXPECT_TRUE(address.error().message.starts_with(std::string("--flag '") + text + "' "));
    EXPECT_NE(address.error().message.find("give HOST:PORT or unix:PATH"), std::string::npos);
  }
  EXPECT_FALSE(ParseAddress("unix:/" + std::string(200, 'p'), "--flag")) << "no socket's path";
}

}  // namespace
}  // namespace pinion
