#include "harness/counters/counters.h"

#include <gmock/gmock.h>
#include <linux/perf_event.h>

#include "harness/counters/sources.h"
#include "tests/harness/counters/machine_folder.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

class CountersTest : public MachineFolder {
 protected:
  CounterReading Examined(const std::string& quantity) {
    for (CounterReading& reading : ExamineCounters(target_))
      if (reading.quantity == quantity) return reading;
    return {};
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
  void PutFabric(const std::string& umask, const std::string& cpuinfo) {
    const std::string device = "sys/bus/event_source/devices/amd_df/";
    Put(device + "type", "13\n");
    Put(device + "cpumask", "0\n");
    Put(device + "format/event", "config:0-7,32-37\n");
    Put(device + "format/umask", umask + "\n");
    Put("proc/cpuinfo", cpuinfo);
  }
};

TEST_F(CountersTest, EveryQuantityHasValuesOrReasons) {
  const auto readings = Counters::Start(target_).Stop();
  ASSERT_EQ(readings.size(), CounterOrder().size());
  const Json json = ToJson(readings);
  for (const CounterReading& reading : readings) {
    EXPECT_NE(reading.source.empty(), reading.unavailable.empty()) << reading.quantity;
    EXPECT_EQ(reading.values.empty(), reading.source.empty()) << reading.quantity;
    if (reading.values.empty()) {
      EXPECT_THAT(json.Find(reading.quantity)->string(), HasSubstr("not available, because "));
    }
  }
  for (const char* bare : {"memory", "energy", "wall"})  // this root has none of their sources
    EXPECT_TRUE(json.Find(bare)->is_string()) << bare;
}

TEST_F(CountersTest, TheDoctorsListIsThatOfTheMeasurement) {
  Put("sys/class/powercap/intel-rapl:0/energy_uj", "5\n");
  Put("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "9\n");
  const auto examined = ExamineCounters(target_), counted = Counters::Start(target_).Stop();
  ASSERT_EQ(examined.size(), counted.size());
  for (size_t i = 0; i < examined.size(); ++i) {
    EXPECT_EQ(examined[i].source, counted[i].source);
    EXPECT_EQ(examined[i].unavailable, counted[i].unavailable);
    EXPECT_EQ(examined[i].fix, counted[i].fix);
  }
  EXPECT_EQ(Examined("energy").source, "rapl");
}

TEST_F(CountersTest, NoToolProgramsCountersThatAnotherSourceUses) {
  PutIntel();
  for (const char* tool : {"pcm-memory", "pcm-numa", "pcm-power"}) PutTool(tool, "exit 1\n");
  EXPECT_EQ(Examined("numa").source, "pcm_numa");
  EXPECT_EQ(Examined("core").source, "");
  EXPECT_EQ(Examined("memory").source, "pcm_memory");
  EXPECT_EQ(Examined("energy").source, "");
  EXPECT_THAT(Examined("energy").unavailable,
              HasSubstr("pcm_power: it would program the counters that pcm_memory uses"));
  std::filesystem::remove(root_ / "usr/sbin/pcm-memory");
  EXPECT_EQ(Examined("energy").source, "pcm_power");
}

TEST_F(CountersTest, AToolThatFailsUnderLoadLeavesAReason) {
  PutIntel();
  PutTool("pcm-memory",
          StrCat("echo 'Error: no access' >&2\ntouch ", target_.root, "ready\nexit 1\n"));
  Counters counters = Counters::Start(target_);
  WaitForTool();
  for (const CounterReading& reading : counters.Stop()) {
    if (reading.quantity != "memory") continue;
    EXPECT_EQ(reading.unavailable, "pcm_memory: pcm-memory says 'Error: no access'");
    EXPECT_EQ(reading.source, "");
  }
}

TEST_F(CountersTest, TheKernelsEventsCountThisProcess) {
  const auto source = PerfSoftwareSource(target_);
  if (const auto gap = source->Examine()) GTEST_SKIP() << gap->reason;
  ASSERT_FALSE(source->Start());
  constexpr size_t kPage = 4096, kPages = 100;
  std::vector<char> touched(kPages * kPage);
  for (size_t page = 0; page < kPages; ++page)
    static_cast<volatile char*>(touched.data())[page * kPage] = 1;
  const auto values = source->Stop(1);
  ASSERT_TRUE(values) << values.error().reason;
  EXPECT_GT(ValueIn(*values, "cpu_s"), 0);
}

TEST_F(CountersTest, AProcessThatHasEndedCannotBeCounted) {
  target_.processes = {1 << 30};
  EXPECT_THAT(PerfSoftwareSource(target_)->Start()->reason, HasSubstr("has ended"));
}

TEST_F(CountersTest, MemoryControllersAreReadBySysfsDescription) {
  PutController("uncore_imc_0");
  PutController("uncore_imc_1");
  Put("sys/bus/event_source/devices/uncore_imc_free_running_0/type", "15\n");  // other events
  const auto events = FindMemoryControllers(target_.root);
  ASSERT_TRUE(events) << events.error().reason;
  ASSERT_EQ(events->size(), 4u);
  for (const DeviceEvent& event : *events) {
    EXPECT_EQ(event.event.type, 14u);
    EXPECT_EQ(event.event.config, event.name == "memory_read_bytes_per_s" ? 0x0304u : 0x0c04u);
    EXPECT_DOUBLE_EQ(event.unit, 64);
    EXPECT_EQ(event.cpus, (std::vector<int>{0, 32}));
  }
  Put("sys/bus/event_source/devices/uncore_imc_0/format/event", "config1:0-7,21\n");
  EXPECT_THAT(FindMemoryControllers(target_.root).error().reason, HasSubstr("'config1:0-7,21'"));
  Put("sys/bus/event_source/devices/uncore_imc_0/format/event", "config:0-1\n");
  EXPECT_THAT(FindMemoryControllers(target_.root).error().reason, HasSubstr("no room"));
}

constexpr char kZen4[] = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t: perfmon_v2\n";
constexpr char kZen5[] = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t: perfmon_v2\n";

TEST_F(CountersTest, AmdsFabricCountsEveryChannel) {
  PutFabric("config:8-15,24-27", kZen4);
  const auto zen4 = FindAmdFabric(target_.root);
  ASSERT_TRUE(zen4) << zen4.error().reason;
  ASSERT_EQ(zen4->size(), 12u * 4);
  // The last channel's writes by the other socket: event 0x2df, umask 0xbff, split over the format.
  EXPECT_EQ(zen4->back().event.config, 0xdfu | 0xffu << 8 | 0xbu << 24 | uint64_t{2} << 32);
  EXPECT_EQ(zen4->back().name, "memory_written_bytes_per_s");
  EXPECT_EQ(zen4->front().event.config, 0x1fu | 0xfeu << 8 | 0x7u << 24);
  PutFabric("config:8-15,24-27", kZen5);
  EXPECT_EQ(FindAmdFabric(target_.root)->size(), 12u * 2);
}

TEST_F(CountersTest, AmdsFabricNeedsAKnownCpuAndAKernelThatKnowsIt) {
  EXPECT_THAT(FindAmdFabric(target_.root).error().reason, HasSubstr("no amd_df"));
  PutFabric("config:8-15", kZen5);
  EXPECT_THAT(FindAmdFabric(target_.root).error().reason, HasSubstr("no room"));
  PutFabric("config:8-15,24-27", "cpu family\t: 25\n");  // Zen 3
  EXPECT_THAT(FindAmdFabric(target_.root).error().reason, HasSubstr("only Zen 4 and Zen 5"));
}

TEST_F(CountersTest, PackageEnergyIsReadBySysfsDescription) {
  const std::string device = "sys/bus/event_source/devices/power/";
  EXPECT_EQ(FindPackageEnergy(target_.root).error().fix, "modprobe rapl");
  Put(device + "type", "9\n");
  Put(device + "cpumask", "0\n");
  Put(device + "format/event", "config:0-7\n");
  Put(device + "events/energy-pkg", "event=0x02\n");
  Put(device + "events/energy-pkg.scale", "2.3283064365386962890625e-10\n");
  Put(device + "events/energy-pkg.unit", "Joules\n");
  const auto events = FindPackageEnergy(target_.root);
  ASSERT_TRUE(events) << events.error().reason;
  EXPECT_EQ(events->front().event.config, 2u);
  EXPECT_DOUBLE_EQ(events->front().unit, std::pow(2.0, -32));
  Put(device + "cpumask", "\n");
  EXPECT_FALSE(FindPackageEnergy(target_.root));
}

TEST(NumaEvents, AreThoseOfTheCpu) {
  const auto zen = NumaEventsOf(kZen4);
  ASSERT_TRUE(zen);
  EXPECT_EQ(zen->local.config, 0x0844u);
  EXPECT_EQ(zen->remote.config, 0x4044u);
  EXPECT_EQ(zen->remote.type, uint32_t{PERF_TYPE_RAW});
  const std::string intel = "vendor_id\t: GenuineIntel\ncpu family\t: 6\n";
  const auto sapphire = NumaEventsOf(intel + "model\t\t: 143\nmodel name\t: Xeon\n");
  ASSERT_TRUE(sapphire);
  EXPECT_EQ(sapphire->local.config1, 0x104004477u);
  EXPECT_EQ(sapphire->remote.config1, 0x730004477u | 0x708004477u);
  EXPECT_FALSE(NumaEventsOf(intel + "model\t\t: 79\n"));
  EXPECT_FALSE(NumaEventsOf("vendor_id\t: AuthenticAMD\ncpu family\t: 23\n"));
  EXPECT_FALSE(NumaEventsOf(""));
}

TEST_F(CountersTest, ResctrlTellsLocalTrafficFromRemote) {
  const std::string folder = "sys/fs/resctrl/mon_data/";
  const auto put = [&](const char* domain, const char* total, const char* local) {
    Put(folder + domain + "/mbm_total_bytes", StrCat(total, "\n"));
    Put(folder + domain + "/mbm_local_bytes", StrCat(local, "\n"));
  };
  put("mon_L3_00", "1000", "1000");
  put("mon_L3_01", "500", "500");
  const auto source = ResctrlSource(target_);
  ASSERT_FALSE(source->Examine());
  ASSERT_FALSE(source->Start());
  put("mon_L3_00", "5000", "4000");
  put("mon_L3_01", "700", "600");
  const auto values = source->Stop(2);
  EXPECT_DOUBLE_EQ(ValueIn(*values, "memory_local_bytes_per_s"), 1550);
  EXPECT_DOUBLE_EQ(ValueIn(*values, "memory_remote_bytes_per_s"), 550);
  put("mon_L3_01", "Unavailable", "1");
  EXPECT_THAT(source->Stop(2).error().reason, HasSubstr("says 'Unavailable'"));
}

TEST_F(CountersTest, ResctrlThatIsNotMountedNamesTheCommand) {
  EXPECT_THAT(ResctrlSource(target_)->Examine()->reason, HasSubstr("no cqm_mbm_local"));
  Put("proc/cpuinfo", "flags\t: cqm_mbm_local\n");
  EXPECT_THAT(ResctrlSource(target_)->Examine()->fix, HasSubstr("mount -t resctrl"));
}

TEST(Figures, AreTheOnesThatACandidateShows) {
  std::vector<CounterReading> readings(2);
  readings[0].values = {{"memory_read_bytes_per_s", 3}, {"memory_written_bytes_per_s", 4}};
  readings[1].values = {{"package_watts", 50}, {"memory_watts", 5}};
  readings[1].seconds = 4;
  const auto figures = FiguresOf(readings);
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_DOUBLE_EQ(ValueIn(figures, "memory_bytes_per_s"), 7);
  EXPECT_DOUBLE_EQ(ValueIn(figures, "package_watts"), 50);
  EXPECT_DOUBLE_EQ(*JoulesOf(readings), 200);
  EXPECT_FALSE(JoulesOf({readings[0]}));
}

}  // namespace
}  // namespace pinion::harness
