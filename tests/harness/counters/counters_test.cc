// The machine is a folder: /sys as some machine has it, a pcm-memory that plays back recorded CSV.

#include "harness/counters/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

// Two sockets' headings as PCM 202211 writes them with -nc, and three samples.
constexpr char kPcmCsv[] =
    ",,SKT0,SKT0,SKT0,SKT0,SKT1,SKT1,SKT1,SKT1,System,System,System\n"
    "Date,Time,Mem Read (MB/s),Mem Write (MB/s),P. Write (T/s),Memory (MB/s),Mem Read (MB/s),"
    "Mem Write (MB/s),P. Write (T/s),Memory (MB/s),Read,Write,Memory\n"
    "2026-11-20,10:00:01.001,  100.00,   50.00,       3,  150.00,    0.00,    0.00,       0,"
    "    0.00,    100.00,     50.00,    150.00\n"
    "2026-11-20,10:00:02.001,  300.00,  150.00,       3,  450.00,    0.00,    0.00,       0,"
    "    0.00,    300.00,    150.00,    450.00\n"
    "2026-11-20,10:00:02.501,  300.00,  1";

class CountersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / StrCat("pinion_counters_", getpid());
    std::filesystem::create_directories(root_);
    target_.root = root_.string() + "/";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    ASSERT_TRUE(WriteFile(root_ / path, text));
  }
  void PutController(const std::string& name) {
    const std::string device = "sys/bus/event_source/devices/" + name + "/";
    Put(device + "type", "14\n");
    Put(device + "cpumask", "0,32\n");
    Put(device + "format/event", "config:0-7\n");
    Put(device + "format/umask", "config:8-15\n");
    for (const auto& [event, umask] :
         {std::pair("cas_count_read", "0x03"), std::pair("cas_count_write", "0x0c")}) {
      Put(device + "events/" + event, StrCat("event=0x04,umask=", umask, "\n"));
      Put(device + "events/" + event + ".scale", "6.103515625e-5\n");
      Put(device + "events/" + event + ".unit", "MiB\n");
    }
  }
  // A program in place of pcm-memory.
  void PutPcm(const std::string& script) {
    Put("proc/cpuinfo", "vendor_id : GenuineIntel\n");
    Put("dev/cpu/0/msr", "");
    Put("usr/sbin/pcm-memory", "#!/bin/sh\n" + script);
    chmod((root_ / "usr/sbin/pcm-memory").c_str(), 0755);
  }
  std::string WhyNot(std::unique_ptr<CounterSource> source) {
    const Status started = source->Start();
    EXPECT_FALSE(started) << source->name();
    return started ? "" : started.error().message;
  }

  std::filesystem::path root_;
  CounterTarget target_;
};

TEST_F(CountersTest, EverySourceHasValuesOrAReason) {
  const auto readings = Counters::Start(target_).Stop();
  ASSERT_EQ(readings.size(), 6u);
  const Json json = ToJson(readings);
  for (const CounterReading& reading : readings) {
    EXPECT_NE(reading.values.empty(), reading.unavailable.empty()) << reading.source;
    if (reading.values.empty()) {
      EXPECT_THAT(json.Find(reading.source)->string(), HasSubstr("not available, because "));
    }
  }
  for (const char* bare : {"uncore", "rapl", "resctrl", "pcm"})  // this root has none of them
    EXPECT_TRUE(json.Find(bare)->is_string()) << bare;
}

TEST_F(CountersTest, TheKernelsEventsCountThisProcess) {
  const auto source = PerfSoftwareSource(target_);
  if (const Status started = source->Start(); !started) GTEST_SKIP() << started.error().message;
  constexpr size_t kPage = 4096, kPages = 100;
  std::vector<char> touched(kPages * kPage);
  for (size_t page = 0; page < kPages; ++page)
    static_cast<volatile char*>(touched.data())[page * kPage] = 1;
  const auto values = source->Stop();
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_GT(*FindValue({{"perf_software", *values, ""}}, "cpu_s"), 0);
}

TEST_F(CountersTest, AProcessThatHasEndedCannotBeCounted) {
  target_.processes = {1 << 30};
  EXPECT_THAT(WhyNot(PerfSoftwareSource(target_)), HasSubstr("has ended"));
}

TEST_F(CountersTest, MemoryControllersAreReadBySysfsDescription) {
  PutController("uncore_imc_0");
  PutController("uncore_imc_1");
  Put("sys/bus/event_source/devices/uncore_imc_free_running_0/type", "15\n");  // other events
  const auto events = FindUncoreEvents(target_.root);
  ASSERT_TRUE(events) << events.error().message;
  ASSERT_EQ(events->size(), 4u);
  for (const UncoreEvent& event : *events) {
    EXPECT_EQ(event.type, 14u);
    EXPECT_EQ(event.config, event.name == "memory_read_bytes" ? 0x0304u : 0x0c04u);
    EXPECT_DOUBLE_EQ(event.unit_bytes, 64);
    EXPECT_EQ(event.cpus, (std::vector<int>{0, 32}));
  }
  Put("sys/bus/event_source/devices/uncore_imc_0/format/event", "config1:0-7,21\n");
  EXPECT_THAT(FindUncoreEvents(target_.root).error().message, HasSubstr("'config1:0-7,21'"));
}

TEST_F(CountersTest, ResctrlSumsAllCaches) {
  const std::string folder = "sys/fs/resctrl/mon_data/";
  Put(folder + "mon_L3_00/mbm_total_bytes", "1000\n");
  Put(folder + "mon_L3_01/mbm_total_bytes", "500\n");
  const auto source = ResctrlSource(target_);
  ASSERT_TRUE(source->Start());
  Put(folder + "mon_L3_00/mbm_total_bytes", "5000\n");
  Put(folder + "mon_L3_01/mbm_total_bytes", "501\n");
  EXPECT_EQ((*source->Stop())[0].value, 4001);
  Put(folder + "mon_L3_01/mbm_total_bytes", "Unavailable\n");
  EXPECT_THAT(source->Stop().error().message, HasSubstr("says 'Unavailable'"));
}

TEST_F(CountersTest, ResctrlThatIsNotMountedNamesTheCommand) {
  EXPECT_THAT(WhyNot(ResctrlSource(target_)), HasSubstr("mount -t resctrl"));
}

TEST(ParsePcmMemory, FindsItsColumnsByName) {
  const auto bandwidth = ParsePcmMemory(kPcmCsv);
  ASSERT_TRUE(bandwidth) << bandwidth.error().message;
  EXPECT_EQ(bandwidth->samples, 2u);  // the third was cut short
  EXPECT_DOUBLE_EQ(bandwidth->read_bytes_per_s, 200e6);
  EXPECT_DOUBLE_EQ(bandwidth->write_bytes_per_s, 100e6);
  EXPECT_DOUBLE_EQ(bandwidth->bytes_per_s, 300e6);
  const auto moved = ParsePcmMemory(
      "noise\n,,System,System,System,SKT0\nDate,Time,Memory,Write,Read,Read\na,b,3,2,1,9\n");
  EXPECT_DOUBLE_EQ(moved->read_bytes_per_s, 1e6);
}

TEST(ParsePcmMemory, ErrorsNameTheMissingPart) {
  EXPECT_THAT(ParsePcmMemory("Error: no MSR\n").error().message, HasSubstr("no columns"));
  EXPECT_THAT(
      ParsePcmMemory(",,System,System,System\nDate,Time,Read,Write,Memory\n").error().message,
      HasSubstr("no sample"));
  EXPECT_THAT(ParsePcmMemory(",,System\nDate,Time,Memory\na,b,1\n").error().message,
              HasSubstr("no columns"));
}

TEST_F(CountersTest, PcmIsAChildThatWritesItsLastLinesWhenInterrupted) {
  PutPcm(StrCat("trap 'cat ", target_.root, "csv; exit 0' INT\n", "touch ", target_.root,
                "ready\nwhile :; do sleep 0.01; done\n"));
  Put("csv", kPcmCsv);
  const auto source = PcmSource(target_);
  ASSERT_TRUE(source->Start());
  while (!std::filesystem::exists(root_ / "ready")) usleep(1000);
  const auto values = source->Stop();
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_EQ(*FindValue({{"pcm", *values, ""}}, "memory_bytes_per_s"), 300e6);
}

TEST_F(CountersTest, FailingOrMissingPcmGivesAReason) {
  EXPECT_THAT(WhyNot(PcmSource(target_)), HasSubstr("support only Intel"));
  Put("proc/cpuinfo", "vendor_id : GenuineIntel\n");
  EXPECT_THAT(WhyNot(PcmSource(target_)), HasSubstr("apt install pcm"));
  PutPcm("echo no access to MSR; exit 1\n");
  const auto source = PcmSource(target_);
  ASSERT_TRUE(source->Start());
  EXPECT_THAT(source->Stop().error().message, HasSubstr("no columns"));
}

}  // namespace
}  // namespace pinion::harness
