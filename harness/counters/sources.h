#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/counters/counters.h"
#include "harness/counters/perf_counter.h"

namespace pinion::harness {

// The sources of CounterOrder.
using Source = std::unique_ptr<CounterSource>;
Source PerfSoftwareSource(const CounterTarget& target);  // the kernel's events of the processes
Source PerfEventSource(const CounterTarget& target);     // the cores' events of the processes
Source PerfNumaSource(const CounterTarget& target);      // reads from near and far memory, theirs
Source ResctrlSource(const CounterTarget& target);       // the kernel's default group
Source UncoreSource(const CounterTarget& target);        // Intel's memory controllers
Source AmdFabricSource(const CounterTarget& target);     // AMD's data fabric, Zen 4 and 5
Source RaplSource(const CounterTarget& target);          // powercap
Source PerfPowerSource(const CounterTarget& target);     // the same counters through perf
Source PcmMemorySource(const CounterTarget& target);     // Intel's tools: the whole machine
Source PcmNumaSource(const CounterTarget& target);
Source PcmPowerSource(const CounterTarget& target);
Source HwmonSource(const CounterTarget& target);  // meters of the power supplies
Source IpmiSource(const CounterTarget& target);   // the board's controller

// The bytes of one cache line, which one access to memory moves.
inline constexpr double kLineBytes = 64;

// One event of a device below /sys/bus/event_source/devices, and its sum's name.
struct DeviceEvent {
  std::string name;  // "memory_read_bytes_per_s"
  PerfCounter::Event event;
  double unit = 0;        // of one count, in the unit of the name
  std::vector<int> cpus;  // that the kernel accepts for it, one per package
};
// Events of Intel's memory controllers, of AMD's data fabric, and of the packages' power.
// Errors: there is no such device, or its description is not understood.
using DeviceEvents = tl::expected<std::vector<DeviceEvent>, CounterGap>;
DeviceEvents FindMemoryControllers(const std::string& root);
DeviceEvents FindAmdFabric(const std::string& root);
DeviceEvents FindPackageEnergy(const std::string& root);

// The core's events that count lines read from near and from far memory, by /proc/cpuinfo; empty
// for a CPU without known ones.
struct NumaEvents {
  PerfCounter::Event local, remote;
};
std::optional<NumaEvents> NumaEventsOf(const std::string& cpuinfo);

// Output of Intel's tools, as means over their samples; lines cut short are left out. Errors: no
// headings, or no sample. Formats: pcm-{memory,numa,power}.cpp of PCM 202302.
CountedValues ParsePcmMemory(const std::string& csv);  // pcm-memory -nc -csv
CountedValues ParsePcmNuma(const std::string& csv);    // pcm-numa -csv
CountedValues ParsePcmPower(const std::string& text);  // pcm-power, the same text in all versions

// Watts in the output of `ipmitool dcmi power reading`. Errors: none, or 0 W, which a controller
// without a meter reports.
tl::expected<double, CounterGap> ParseDcmiPower(const std::string& text);

}  // namespace pinion::harness
