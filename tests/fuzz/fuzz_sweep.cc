#include "engine/base/check.h"
#include "harness/space/definition.h"
#include "harness/space/settings.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

using harness::Definition;
using harness::Setting;

// Applies what each candidate sets, and each value of the axes.
void ApplyAll(const Definition& definition) {
  for (const Json& candidate : definition.candidates) {
    const auto settings = harness::SettingsOf(candidate);
    if (!settings) continue;
    Configuration configuration;
    for (const Setting& setting : *settings)
      if (!harness::Apply(setting, configuration)) break;
    (void)harness::Label(*settings);
    (void)harness::ConfigurationOf(*settings);
  }
  for (const harness::Axis& axis : definition.axes)
    for (const Json& value : axis.values) {
      Configuration configuration;
      if (harness::Apply({axis.key, SettingText(value)}, configuration))
        (void)Validate(configuration.options);
    }
}

}  // namespace

void Sweep(std::string_view text) {
  const auto json = Json::Parse(text);
  if (!json) return;
  Definition definition;
  if (const auto read = FromJson(*json, definition); !read) {
    CHECK(!read.error().message.empty());
    return;
  }
  // results.db keeps what is written, and a resumed sweep reads it.
  const Json written = ToJson(definition);
  Definition again;
  const auto read = FromJson(written, again);
  CHECK(read) << read.error().message << " in " << written.Dump();
  CHECK(ToJson(again).Dump() == written.Dump()) << ToJson(again).Dump();
  ApplyAll(definition);
}

}  // namespace pinion::fuzz
