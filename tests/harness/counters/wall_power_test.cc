#include <gmock/gmock.h>

#include "harness/counters/sources.h"
#include "tests/harness/counters/machine_folder.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

using WallPower = MachineFolder;

TEST_F(WallPower, OfPowerSuppliesIsTheSumOfTheirInputs) {
  Put("sys/class/hwmon/hwmon0/name", "amdgpu\n");
  Put("sys/class/hwmon/hwmon0/power1_input", "77000000\n");
  for (const char* supply : {"hwmon1", "hwmon2"}) {
    Put(StrCat("sys/class/hwmon/", supply, "/name"), "pmbus\n");
    Put(StrCat("sys/class/hwmon/", supply, "/power1_label"), "pin\n");
    Put(StrCat("sys/class/hwmon/", supply, "/power1_input"), "150000000\n");
    Put(StrCat("sys/class/hwmon/", supply, "/power2_label"), "pout1\n");
    Put(StrCat("sys/class/hwmon/", supply, "/power2_input"), "130000000\n");
  }
  const auto source = HwmonSource(target_);
  ASSERT_FALSE(source->Examine());
  ASSERT_FALSE(source->Start());
  EXPECT_DOUBLE_EQ(ValueIn(*source->Stop(1), "wall_watts"), 300);
}

TEST_F(WallPower, OfAnAcpiMeterCountsOnce) {
  Put("sys/class/hwmon/hwmon0/name", "power_meter\n");
  Put("sys/class/hwmon/hwmon0/power1_average", "250000000\n");
  Put("sys/class/hwmon/hwmon0/power1_average_interval", "1000\n");
  Put("sys/class/hwmon/hwmon0/power1_input", "250000000\n");
  const auto source = HwmonSource(target_);
  ASSERT_FALSE(source->Examine());
  ASSERT_FALSE(source->Start());
  EXPECT_DOUBLE_EQ(ValueIn(*source->Stop(1), "wall_watts"), 250);
}

TEST_F(WallPower, NeedsAMeterOfTheWholeMachineThatCanBeRead) {
  EXPECT_EQ(HwmonSource(target_)->Examine()->fix, "modprobe acpi_power_meter");
  Put("sys/class/hwmon/hwmon0/name", "amdgpu\n");
  Put("sys/class/hwmon/hwmon0/power1_average", "77000000\n");
  EXPECT_THAT(HwmonSource(target_)->Examine()->reason, HasSubstr("no meter of the whole machine"));
  Put("sys/class/hwmon/hwmon1/name", "power_meter\n");
  Put("sys/class/hwmon/hwmon1/power1_average", "N/A\n");
  EXPECT_THAT(HwmonSource(target_)->Examine()->reason, HasSubstr("says 'N/A'"));
  Put("sys/class/hwmon/hwmon1/power1_average", "");
  EXPECT_THAT(HwmonSource(target_)->Examine()->reason, HasSubstr("cannot be read"));
}

// Composed from the documentation of `ipmitool dcmi`, not recorded: no machine of ours has a board
// controller. The numbers are made up.
constexpr char kDcmi[] =
    "\n    Instantaneous power reading:                   219 Watts\n"
    "    Minimum during sampling period:                 21 Watts\n"
    "    Maximum during sampling period:                340 Watts\n"
    "    Power reading state is:                   activated\n\n";

TEST(ParseDcmiPower, TakesTheReadingAndNotItsExtremes) {
  EXPECT_DOUBLE_EQ(*ParseDcmiPower(kDcmi), 219);
  EXPECT_THAT(ParseDcmiPower("Instantaneous power reading: 0 Watts\n").error().reason,
              HasSubstr("no power meter"));
  for (const char* garbled :
       {"", "Instantaneous power reading: x Watts\n", "Instantaneous power reading:   21"})
    EXPECT_THAT(ParseDcmiPower(garbled).error().reason, HasSubstr("no power reading")) << garbled;
}

TEST_F(WallPower, ByIpmiNeedsTheControllerAndTheTool) {
  EXPECT_THAT(IpmiSource(target_)->Examine()->fix, HasSubstr("modprobe ipmi_si"));
  Put("dev/ipmi0", "");
  EXPECT_EQ(IpmiSource(target_)->Examine()->fix, "apt install ipmitool");
  Put("printed", kDcmi);
  PutTool("ipmitool",
          StrCat("[ \"$*\" = 'dcmi power reading' ] && cat ", target_.root, "printed\n"));
  const auto source = IpmiSource(target_);
  ASSERT_FALSE(source->Examine());
  ASSERT_FALSE(source->Start());
  EXPECT_DOUBLE_EQ(ValueIn(*source->Stop(1), "wall_watts"), 219);
}

TEST_F(WallPower, ByIpmiSaysWhyItWasRefusedOrKilled) {
  Put("dev/ipmi0", "");
  PutTool("ipmitool",
          "echo 'Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: Permission "
          "denied' >&2\nexit 1\n");
  const auto refused = IpmiSource(target_);
  ASSERT_FALSE(refused->Examine());
  ASSERT_FALSE(refused->Start());
  EXPECT_THAT(refused->Stop(1).error().reason, HasSubstr("ipmitool says 'Could not open device"));
  target_.patience_s = 0.05;
  PutTool("ipmitool", "printf '    Instantaneous power reading:    2'\nexec sleep 1000\n");
  const auto hangs = IpmiSource(target_);
  ASSERT_FALSE(hangs->Examine());
  ASSERT_FALSE(hangs->Start());
  EXPECT_THAT(hangs->Stop(1).error().reason, HasSubstr("was killed"));
}

}  // namespace
}  // namespace pinion::harness
