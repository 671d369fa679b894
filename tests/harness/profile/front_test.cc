#include "harness/profile/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Haproxy, NamesEveryReplicaOnThePortsThatFollow) {
  const std::string text = HaproxyText("0.0.0.0", 8000, 2, "/ready");
  EXPECT_THAT(text, HasSubstr("bind 0.0.0.0:8000\n"));
  EXPECT_THAT(text, HasSubstr("server replica1 127.0.0.1:8001 check cookie 1\n"));
  EXPECT_THAT(text, HasSubstr("server replica2 127.0.0.1:8002 check cookie 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("8003")));
  EXPECT_THAT(text, HasSubstr("httpchk GET /ready\n"));
}

TEST(Haproxy, SendsTheReplicasANameOfTheirs) {
  EXPECT_THAT(HaproxyText("0.0.0.0", 8000, 2), HasSubstr("backend replicas\n"));
  EXPECT_THAT(HaproxyText("0.0.0.0", 8000, 2),
              HasSubstr("\n  http-request set-header Host localhost\n"));
}

TEST(Haproxy, SpreadsAsTheSweepDid) {
  const std::string text = HaproxyText("127.0.0.1", 8000, 3);
  EXPECT_THAT(text, HasSubstr("balance leastconn"));
  EXPECT_THAT(text, HasSubstr("cookie PINION_REPLICA insert"));
}

}  // namespace
}  // namespace pinion::harness
