// Intel's tools. No machine of ours lets them run past their first check, so their output is not
// recorded but composed from their sources and others' notes, as each constant says; the errors are
// those of the real programs here, which run as well if they are installed.

#include <gmock/gmock.h>

#include <cstdlib>

#include "harness/counters/sources.h"
#include "tests/harness/counters/machine_folder.h"

namespace pinion::harness {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// pcm-memory -nc -csv: headings and widths as display_bandwidth_csv of PCM 202302 (tag b0b18e9d4)
// writes them for two sockets; the numbers are made up. The third sample is cut short.
constexpr char kMemory[] =
    ",,SKT0,SKT0,SKT0,SKT0,SKT1,SKT1,SKT1,SKT1,System,System,System\n"
    "Date,Time,Mem Read (MB/s),Mem Write (MB/s),P. Write (T/s),Memory (MB/s),Mem Read (MB/s),"
    "Mem Write (MB/s),P. Write (T/s),Memory (MB/s),Read,Write,Memory\n"
    "2026-11-20,10:00:01.001,  100.00,   50.00,         3,  150.00,    0.00,    0.00,         0,"
    "    0.00,    100.00,     50.00,    150.00\n"
    "2026-11-20,10:00:02.001,  300.00,  150.00,         3,  450.00,    0.00,    0.00,         0,"
    "    0.00,    300.00,    150.00,    450.00\n"
    "2026-11-20,10:00:02.501,  300.00,  150.00,         3,  450.00,    0.00,    0.00,         0,"
    "    0.00,    900.00,    900.00";

// pcm-numa -csv: lines as print_stats of PCM 202302 writes them; the first sample's numbers of the
// cores are those of intel/pcm issue 669, its sum is of these two cores. The last is cut short.
constexpr char kNuma[] =
    "INFO: Monitored accesses include demand + L2 cache prefetcher, code read and RFO.\n"
    "Time elapsed: 1000 ms\n"
    "Core,IPC,Instructions,Cycles,Local DRAM accesses,Remote DRAM accesses \n"
    "0,0.97,24000000,25000000,3854,21000,\n"
    "1,0.59,812000,1366000,1578,2367,\n"
    "*,0.94,24812000,26366000,5432,23367,\n"
    "\n"
    "Time elapsed: 1500 ms\n"
    "Core,IPC,Instructions,Cycles,Local DRAM accesses,Remote DRAM accesses \n"
    "0,-nan,0,0,0,0,\n"
    "1,1.00,10,10,994568,76633,\n"
    "*,1.00,10,10,994568,76633,\n"
    "\n"
    "Time elapsed: 1000 ms\n"
    "Core,IPC,Instructions,Cycles,Local DRAM accesses,Remote DRAM accesses \n"
    "0,1.00,10,10,77,77,\n"
    "*,1.00,10,10,777777,77";

// pcm-power without -csv: a sample of two Xeon E5-2630 v4 over 19,955 ms, its figures of energy as
// recorded in a public collection of notes on such tools; the second sample is cut short.
constexpr char kPower[] =
    "\n----------------------------------------------------------------------------------------\n"
    "Time elapsed: 19955 ms\n"
    "Called sleep function for 20000 ms\n"
    "S0P0; QPIClocks: 39944957822; L0p Tx Cycles: 0.07%; L1 Cycles: 0.00%\n"
    "S0CH4; DRAMClocks: 0; Rank0 CKE Off Residency: -nan%; Rank0 CKE Off Average Cycles: -1\n"
    "S0; PCUClocks: 19972702313; Freq band 0/1/2 cycles: 0.00%; 0.00%; 0.00%\n"
    "S0; Consumed energy units: 21940672; Consumed Joules: 1339.15; Watts: 67.11; Thermal headroom "
    "below TjMax: 37\n"
    "S0; Consumed DRAM energy units: 30697043; Consumed DRAM Joules: 469.66; DRAM Watts: 23.54\n"
    "S1; Consumed energy units: 22058738; Consumed Joules: 1346.36; Watts: 67.47; Thermal headroom "
    "below TjMax: 43\n"
    "S1; Consumed DRAM energy units: 31974483; Consumed DRAM Joules: 489.21; DRAM Watts: 24.52\n"
    "----------------------------------------------------------------------------------------\n"
    "Time elapsed: 1000 ms\n"
    "S0; Consumed energy units: 9; Consumed Joules: 9999; Watts: 9999; Thermal headroom below "
    "TjMax: 37\n";

TEST(ParsePcmMemory, FindsItsColumnsByName) {
  const auto values = ParsePcmMemory(kMemory);
  ASSERT_TRUE(values) << values.error().reason;
  EXPECT_DOUBLE_EQ(ValueIn(*values, "memory_read_bytes_per_s"), 200e6);
  EXPECT_DOUBLE_EQ(ValueIn(*values, "memory_written_bytes_per_s"), 100e6);
  const auto moved = ParsePcmMemory(
      "noise\n,,System,System,System,SKT0\nDate,Time,Memory,Write,Read,Read\na,b,3,2,1,9\n");
  EXPECT_DOUBLE_EQ(ValueIn(*moved, "memory_read_bytes_per_s"), 1e6);
}

TEST(ParsePcmMemory, ErrorsNameTheMissingPart) {
  EXPECT_THAT(ParsePcmMemory("").error().reason, HasSubstr("no columns"));
  EXPECT_THAT(ParsePcmMemory(",,System\nDate,Time,Memory\na,b,1\n").error().reason,
              HasSubstr("no columns"));
  EXPECT_THAT(ParsePcmMemory(",,System,System\nDate,Time,Read,Write\na,b,x,y\n").error().reason,
              HasSubstr("no sample"));
}

TEST(ParsePcmNuma, AddsWholeSamplesOfTheWholeMachine) {
  const auto values = ParsePcmNuma(kNuma);
  ASSERT_TRUE(values) << values.error().reason;
  // A million local and 100,000 remote lines in 2.5 s.
  EXPECT_DOUBLE_EQ(ValueIn(*values, "memory_local_bytes_per_s"), 1'000'000 * 64 / 2.5);
  EXPECT_DOUBLE_EQ(ValueIn(*values, "memory_remote_bytes_per_s"), 100'000 * 64 / 2.5);
}

TEST(ParsePcmNuma, ErrorsNameTheMissingPart) {
  EXPECT_THAT(ParsePcmNuma("Time elapsed: 1000 ms\n").error().reason, HasSubstr("no columns"));
  const std::string heading = "Core,Local DRAM accesses,Remote DRAM accesses \n";
  EXPECT_THAT(ParsePcmNuma("Time elapsed: 1000 ms\n" + heading).error().reason,
              HasSubstr("no sample"));
  EXPECT_THAT(ParsePcmNuma(heading + "*,1,2,\n").error().reason, HasSubstr("no sample"));
  EXPECT_THAT(ParsePcmNuma("Time elapsed: 0 ms\n" + heading + "*,1,2,\n").error().reason,
              HasSubstr("no sample"));
}

TEST(ParsePcmPower, AddsSocketsAndLeavesOutASampleThatIsCutShort) {
  const auto values = ParsePcmPower(kPower);
  ASSERT_TRUE(values) << values.error().reason;
  EXPECT_NEAR(ValueIn(*values, "package_watts"), 67.11 + 67.47, 0.01);
  EXPECT_NEAR(ValueIn(*values, "memory_watts"), 23.54 + 24.52, 0.01);
  const std::string text = kPower, whole = text.substr(0, text.rfind("Time elapsed"));
  EXPECT_NEAR(ValueIn(*ParsePcmPower(whole + whole), "package_watts"), 67.11 + 67.47, 0.01);
  EXPECT_THAT(ParsePcmPower("Time elapsed: 1000 ms\nS0; Consumed Joules: 5\n").error().reason,
              HasSubstr("no whole sample"));
}

class PcmTool : public MachineFolder {
 protected:
  // Why a tool that was started and has had its say gives no values.
  std::string ReasonOf(const Source& source) {
    if (source->Examine() || source->Start()) return "it did not start";
    WaitForTool();
    const auto values = source->Stop(1);
    return values ? "it gives values" : values.error().reason;
  }
};

TEST_F(PcmTool, WritesItsLastLinesWhenInterrupted) {
  PutIntel();
  PutToolThatPrintsAtItsEnd("pcm-memory", kMemory);
  const auto source = PcmMemorySource(target_);
  ASSERT_FALSE(source->Examine());
  ASSERT_FALSE(source->Start());
  WaitForTool();
  const auto values = source->Stop(1);
  ASSERT_TRUE(values) << values.error().reason;
  EXPECT_EQ(ValueIn(*values, "memory_read_bytes_per_s"), 200e6);
}

TEST_F(PcmTool, IsKilledIfItHangs) {
  PutIntel();
  target_.patience_s = 0.05;
  PutTool("pcm-numa", StrCat("trap '' INT TERM\nprintf 'Time elapsed: 10'\ntouch ", target_.root,
                             "ready\nwhile :; do sleep 0.01; done\n"));
  EXPECT_THAT(ReasonOf(PcmNumaSource(target_)), HasSubstr("was killed"));
}

TEST_F(PcmTool, KeepsTheOutputOfAHangingTool) {
  PutIntel();
  target_.patience_s = 0.05;
  Put("printed", kMemory);
  PutTool("pcm-memory", StrCat("trap '' INT TERM\ncat ", target_.root, "printed\ntouch ",
                               target_.root, "ready\nwhile :; do sleep 0.01; done\n"));
  const auto source = PcmMemorySource(target_);
  ASSERT_FALSE(source->Examine());
  ASSERT_FALSE(source->Start());
  WaitForTool();
  EXPECT_TRUE(source->Stop(1));
}

TEST_F(PcmTool, SaysWhyItFailed) {
  PutIntel();
  // The first words of PCM 202302 on an AMD machine.
  PutTool("pcm-power",
          "echo 'PCM Info: setrlimit for file limit 1000000 failed' >&2\n"
          "echo 'Error: unsupported processor. Only Intel(R) processors are supported (...).' >&2\n"
          "echo 'Unsupported processor model (-1).' >&2\n" +
              StrCat("touch ", target_.root, "ready\nexit 1\n"));
  EXPECT_THAT(ReasonOf(PcmPowerSource(target_)),
              HasSubstr("pcm-power says 'Error: unsupported processor. Only Intel(R)"));
}

TEST_F(PcmTool, OfAVirtualMachineNamesTheCountersThatAreNotEnabled) {
  PutIntel();
  // The output of PCM 202302 on Sapphire Rapids without a PMU.
  PutTool("pcm-memory",
          "echo 'Linux arch_perfmon flag  : no' >&2\n"
          "echo 'ERROR: vPMU is not enabled in the hypervisor. Please see details in ...' >&2\n"
          "echo 'Unsupported processor model (207).' >&2\n"
          "echo \"For processor-level statistics please use 'pcm' utility\" >&2\n" +
              StrCat("touch ", target_.root, "ready\nexit 1\n"));
  EXPECT_THAT(ReasonOf(PcmMemorySource(target_)),
              HasSubstr("pcm-memory says 'ERROR: vPMU is not enabled in the hypervisor"));
}

// On a machine with counters the real programs' samples are read; elsewhere their own words say
// what is missing.
TEST_F(PcmTool, IsReadAsInstalled) {
  PutIntel();
  // They take the counters of the whole machine, which another run may be using.
  if (!std::getenv("PINION_TEST_PCM")) GTEST_SKIP() << "runs if PINION_TEST_PCM is set";
  const std::filesystem::path folder = "/usr/sbin";
  const Source sources[] = {PcmMemorySource(target_), PcmNumaSource(target_),
                            PcmPowerSource(target_)};
  std::filesystem::create_directories(root_ / "usr/sbin");
  for (const char* name : {"pcm-memory", "pcm-numa", "pcm-power"})
    std::filesystem::create_symlink(folder / name, root_ / "usr/sbin" / name);
  for (const Source& source : sources) {
    ASSERT_FALSE(source->Examine());
    ASSERT_FALSE(source->Start());
    usleep(2'500'000);  // two samples, or the end of a program that refuses
    const auto values = source->Stop(10);
    if (values)
      EXPECT_THAT(*values, AllOf(Not(IsEmpty()), Each(Field(&CounterValue::value, Ge(0)))));
    else
      EXPECT_THAT(values.error().reason, HasSubstr(" says '"));
  }
}

TEST_F(PcmTool, ThatIsMissingNamesTheCommand) {
  const auto gap = [&] { return *PcmMemorySource(target_)->Examine(); };
  EXPECT_THAT(gap().reason, HasSubstr("support only Intel"));
  Put("proc/cpuinfo", "vendor_id : GenuineIntel\n");
  EXPECT_EQ(gap().fix, "apt install pcm");
  PutTool("pcm-memory", "exit 0\n");
  EXPECT_EQ(gap().fix, "modprobe msr");
  Put("dev/cpu/0/msr", "");
  EXPECT_FALSE(PcmMemorySource(target_)->Examine());
}

}  // namespace
}  // namespace pinion::harness
