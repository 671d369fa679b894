// The order of the sources. The kernel's come before tools, which need root and the MSR device. The
// split into local and remote traffic comes before the core's other events: if only pcm-numa can
// count it, it gets the core's counters, which it programs itself.

#include "harness/counters/sources.h"

namespace pinion::harness {

const std::vector<CounterChoice>& CounterOrder() {
  using Info = CounterSourceInfo;
  static const std::vector<CounterChoice> order = {
      {"kernel",
       "CPU time, context switches, migrations, page faults",
       {{"perf_software", PerfSoftwareSource}}},
      {"numa",
       "local and remote memory traffic",
       {{"resctrl", ResctrlSource},
        {"perf_numa", PerfNumaSource, Info::kCore},
        {"pcm_numa", PcmNumaSource, Info::kCore, true}}},
      {"core",
       "instructions, cycles, frequency, cache misses",
       {{"perf_event", PerfEventSource, Info::kCore}}},
      {"memory",
       "memory read and written",
       {{"uncore", UncoreSource, Info::kMemoryControllers},
        {"amd_df", AmdFabricSource, Info::kMemoryControllers},
        {"pcm_memory", PcmMemorySource, Info::kMemoryControllers, true}}},
      {"energy",
       "energy of the processor packages",
       {{"rapl", RaplSource},
        {"perf_power", PerfPowerSource},
        {"pcm_power", PcmPowerSource, Info::kMemoryControllers, true}}},
      {"wall", "power at the wall", {{"hwmon", HwmonSource}, {"ipmi", IpmiSource}}},
  };
  return order;
}

}  // namespace pinion::harness
