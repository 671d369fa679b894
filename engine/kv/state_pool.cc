#include "engine/kv/state_pool.h"

#include <algorithm>

#include "engine/base/check.h"

namespace pinion {

StatePool::StatePool(int32_t first, size_t count) : total_(count) {
  for (size_t i = count; i-- > 0;) free_.push_back(first + static_cast<int32_t>(i));
}

std::optional<int32_t> StatePool::Use(const BlockHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  kept_.splice(kept_.end(), kept_, found->second);
  ++found->second->users;
  return found->second->place;
}

void StatePool::Release(int32_t place) {
  const auto entry = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const Entry& kept) { return kept.place == place; });
  CHECK(entry != kept_.end() && entry->users > 0) << "state " << place << " is not in use";
  --entry->users;
}

std::optional<int32_t> StatePool::Reserve() {
  if (free_.empty()) {
    const auto oldest =
        std::find_if(kept_.begin(), kept_.end(), [](const Entry& kept) { return kept.users == 0; });
    if (oldest == kept_.end()) return std::nullopt;
    Cancel(oldest->place);
    by_hash_.erase(oldest->hash);
    kept_.erase(oldest);
  }
  const int32_t place = free_.back();
  free_.pop_back();
  return place;
}

void StatePool::Keep(int32_t place, const BlockHash& hash) {
  if (Has(hash)) return Cancel(place);
  kept_.push_back({hash, place, 0});
  by_hash_.emplace(hash, std::prev(kept_.end()));
}

void StatePool::Cancel(int32_t place) { free_.push_back(place); }

void StatePool::Drop() {
  for (auto entry = kept_.begin(); entry != kept_.end();) {
    if (entry->users > 0) {
      ++entry;
      continue;
    }
    Cancel(entry->place);
    by_hash_.erase(entry->hash);
    entry = kept_.erase(entry);
  }
}

}  // namespace pinion
