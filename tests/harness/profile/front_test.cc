#include "harness/profile/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using testing::HasSubstr;

std::vector<FrontAddress> Addresses(const std::string& text) {
  const auto parsed = ParseFrontAddresses(text, 8000, "--haproxy");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return *parsed;
}

TEST(FrontAddresses, HaveTheUsualPortUnlessTheyNameOne) {
  const auto servers = Addresses("one, 10.0.0.2:9000,[fd00::1],[fd00::1]:81");
  ASSERT_EQ(servers.size(), 4u);
  EXPECT_EQ(servers[0].host, "one");
  EXPECT_EQ(servers[0].port, 8000);
  EXPECT_EQ(servers[1].host, "10.0.0.2");
  EXPECT_EQ(servers[1].port, 9000);
  EXPECT_EQ(servers[2].host, "fd00::1");
  EXPECT_EQ(servers[2].port, 8000);
  EXPECT_EQ(servers[3].port, 81);
}

TEST(FrontAddresses, AreRefusedByName) {
  for (const char* text :
       {"", "one,", ":8000", "one:", "one:0", "one:65536", "one:80x", "on e", "one;two", "one{",
        "fd00::1", "[fd00::1", "[]:80", "[fd00::1]x", "http://one"}) {
    const auto parsed = ParseFrontAddresses(text, 8000, "--nginx");
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(ExitCode(parsed.error()), 2);
    EXPECT_THAT(parsed.error().message, HasSubstr("--nginx")) << text;
  }
  EXPECT_THAT(ParseFrontAddresses("one,one:8000", 8000, "--nginx").error().message,
              HasSubstr("names one:8000 twice"));
}

TEST(Front, NamesEveryServerOnce) {
  const auto servers = Addresses("one,two:9000,[fd00::1]");
  const std::string haproxy = HaproxyText({"0.0.0.0", 80}, servers);
  EXPECT_THAT(haproxy, HasSubstr("bind 0.0.0.0:80\n"));
  EXPECT_THAT(haproxy, HasSubstr("server server1 one:8000 check inter 2s cookie 1\n"));
  EXPECT_THAT(haproxy, HasSubstr("server server2 two:9000 check inter 2s cookie 2\n"));
  EXPECT_THAT(haproxy, HasSubstr("server server3 [fd00::1]:8000 check"));
  const std::string nginx = NginxText({"::", 80}, servers);
  EXPECT_THAT(nginx, HasSubstr("listen [::]:80;\n"));
  EXPECT_THAT(nginx, HasSubstr("server one:8000 max_fails=1"));
  EXPECT_THAT(nginx, HasSubstr("server two:9000 max_fails=1"));
  EXPECT_THAT(nginx, HasSubstr("server [fd00::1]:8000 max_fails=1"));
}

TEST(Front, SendsRequestsToTheLeastBusyAndNeverHoldsAnswersBack) {
  const std::string haproxy = HaproxyText({"h", 1}, Addresses("one"));
  for (const char* line : {"balance leastconn\n", "http-check send meth GET uri /health",
                           "timeout server 1h\n", "http-request set-header Host localhost\n"})
    EXPECT_THAT(haproxy, HasSubstr(line));
  const std::string nginx = NginxText({"h", 1}, Addresses("one"));
  for (const char* line : {"least_conn;\n", "proxy_buffering off;\n", "proxy_read_timeout 1h;\n",
                           "proxy_set_header Host localhost;\n", "http_503"})
    EXPECT_THAT(nginx, HasSubstr(line));
}

}  // namespace
}  // namespace pinion::harness
