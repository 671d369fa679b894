#include "engine/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

std::vector<uint64_t> GatherNumbers(Communicator& world, uint64_t mine) {
  std::vector<uint64_t> all(world.processes());
  world.Gather(&mine, sizeof mine, all.data());
  return all;
}

}  // namespace

std::vector<std::string> GatherTexts(Communicator& world, const std::string& mine) {
  const std::vector<uint64_t> sizes = GatherNumbers(world, mine.size());
  const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine, all(world.processes() * longest, '\0');
  padded.resize(longest);
  world.Gather(padded.data(), longest, all.data());
  std::vector<std::string> texts;
  for (size_t process = 0; process < sizes.size(); ++process)
    texts.push_back(all.substr(process * longest, sizes[process]));
  return texts;
}

std::string BroadcastText(Communicator& world, const std::string& text) {
  uint64_t size = text.size();
  world.Broadcast(&size, sizeof size);
  std::string all = text;
  all.resize(size);
  world.Broadcast(all.data(), size);
  return all;
}

uint64_t LeastOf(Communicator& world, uint64_t mine) {
  const std::vector<uint64_t> all = GatherNumbers(world, mine);
  return *std::min_element(all.begin(), all.end());
}

uint64_t SumOf(Communicator& world, uint64_t mine) {
  const std::vector<uint64_t> all = GatherNumbers(world, mine);
  return std::accumulate(all.begin(), all.end(), uint64_t{0});
}

void Barrier(Communicator& world) { LeastOf(world, 0); }

Status Together(Communicator* world, Status mine) {
  if (!world) return mine;
  // A code in front of the message; nothing at all is success.
  const std::string report =
      mine ? ""
           : StrCat(static_cast<char>('A' + static_cast<int>(mine.error().code)),
                    mine.error().message);
  const std::vector<std::string> reports = GatherTexts(*world, report);
  for (size_t process = 0; process < reports.size(); ++process) {
    if (reports[process].empty()) continue;
    const std::string message = reports[process].substr(1);
    return Fail(static_cast<ErrorCode>(reports[process][0] - 'A'),
                process == 0 ? message : StrCat("process ", process, ": ", message));
  }
  return {};
}

}  // namespace pinion
