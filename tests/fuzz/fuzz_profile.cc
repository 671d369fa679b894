#include "engine/base/check.h"
#include "harness/profile/command.h"
#include "harness/profile/other_engines.h"
#include "harness/profile/profile.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {

void Profile(std::string_view text) {
  const auto json = Json::Parse(text);
  if (!json) return;
  const auto profile = harness::ParseProfile(*json);
  if (!profile) {
    CHECK(!profile.error().message.empty());
    return;
  }
  const Json written = ToJson(*profile);
  const auto again = harness::ParseProfile(written);
  CHECK(again) << again.error().message << " in " << written.Dump();
  CHECK(ToJson(*again).Dump() == written.Dump()) << ToJson(*again).Dump();
  // The steps of launch before it asks the machine.
  (void)Validate(profile->configuration.options);
  (void)harness::ShellText(harness::ServeCommand(profile->configuration, "127.0.0.1", 8000));
  (void)harness::VllmShellText(profile->configuration, {});
  (void)harness::LlamaShellText(profile->configuration, {}, {});
  (void)harness::WithoutCounterpart(profile->configuration, &SettingRow::vllm);
}

}  // namespace pinion::fuzz
