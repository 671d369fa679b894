#include "harness/stats/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/base/json.h"
#include "tests/test_data.h"

namespace pinion::harness {
namespace {

// A profile holds figures of any metric that its sweep has measured.
TEST(Metrics, UnitsAreThoseOfAProfilesSchema) {
  const Json schema = *Json::ParseFile(tests::SourceFolder() / "profiles/profile.schema.json");
  const Json& figure = *schema.Find("properties")->Find("expected")->Find("items");
  std::set<std::string> listed, units;
  for (const Json& unit : figure.Find("properties")->Find("unit")->Find("enum")->array())
    listed.insert(unit.string());
  for (const MetricInfo& metric : Metrics()) units.insert(metric.unit);
  EXPECT_EQ(units, listed);
}

}  // namespace
}  // namespace pinion::harness
