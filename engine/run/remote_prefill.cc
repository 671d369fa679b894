#include "engine/run/remote_prefill.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace pinion {

BlockHash RemotePrefill::NameOfPart(const Prompt& prompt, size_t index) {
  const BlockHash& whole = prompt.hashes[index];
  return {~whole.high, whole.low ^ prompt.id};
}

RemotePrefill::RemotePrefill(Parts parts, std::shared_ptr<PrefillClient> client,
                             size_t most_running)
    : parts_(std::move(parts)),
      tables_(parts_.pool, parts_.reaches),
      image_bytes_(parts_.executor.image_bytes()),
      client_(std::move(client)),
      most_running_(most_running) {}

bool RemotePrefill::Keep(std::unique_ptr<Sequence>& sequence) {
  if (sequence->whole || sequence->rates_prompt() || !client_->any_up()) return false;
  const size_t block_tokens = parts_.pool.block_tokens();
  const size_t blocks = (sequence->tokens.size() - 1) / block_tokens;
  HashBlocks(*sequence, blocks, block_tokens);
  const std::span<const BlockHash> hashes(sequence->hashes.data(), blocks);
  const size_t cached = tables_.LongestCached(hashes);
  if (blocks < cached + kLeastBlocks) return false;
  for (Prompt& prompt : prompts_) {
    if (prompt.hashes.back() != hashes.back()) continue;
    prompt.sequences.push_back(std::move(sequence));
    return true;
  }
  const auto place = std::find_if(prompts_.begin(), prompts_.end(), [&](const Prompt& other) {
    return !other.ordered && other.sequences.front()->priority > sequence->priority;
  });
  Prompt& prompt = *prompts_.emplace(place);
  prompt.id = ++last_id_;
  prompt.since_ns = NowNs();
  prompt.hashes.assign(hashes.begin(), hashes.end());
  prompt.first_block = cached;
  prompt.arrived.assign(tables_.count(), std::vector<size_t>(blocks));
  for (size_t table = 0; table < tables_.count(); ++table)
    prompt.needs += blocks - std::max(cached, tables_.FirstBlock(table, blocks));
  prompt.sequences.push_back(std::move(sequence));
  OrderMore();
  return true;
}

size_t RemotePrefill::kept() const {
  size_t count = 0;
  for (const Prompt& prompt : prompts_) count += prompt.sequences.size();
  return count;
}

std::unique_ptr<Sequence> RemotePrefill::Abort(uint64_t id) {
  for (auto prompt = prompts_.begin(); prompt != prompts_.end(); ++prompt) {
    auto& sequences = prompt->sequences;
    const auto found = std::find_if(sequences.begin(), sequences.end(),
                                    [id](const auto& one) { return one->id == id; });
    if (found == sequences.end()) continue;
    std::unique_ptr<Sequence> sequence = std::move(*found);
    sequences.erase(found);
    if (sequences.empty()) {
      if (prompt->ordered) client_->Cancel(prompt->id);
      DropParts(*prompt);
      prompts_.erase(prompt);
    }
    sequence->finish = FinishReason::kAborted;
    return sequence;
  }
  return nullptr;
}

void RemotePrefill::BeforeStep(int64_t ns) {
  const int64_t began_ns = NowNs();
  while (auto event = client_->Next()) {
    std::visit([this](const auto& one) { Take(one); }, *event);
    if (NowNs() - began_ns > ns) break;
  }
  OrderMore();
}

// Orders prompts that will find room when they arrive: blocks, and a place among those that run.
void RemotePrefill::OrderMore() {
  for (auto prompt = prompts_.begin(); prompt != prompts_.end();) {
    const auto at = prompt++;
    if (at->ordered) continue;
    const bool has_room = HasRoomFor(*at);
    if (!has_room && NowNs() - at->since_ns < kPatienceNs) break;
    if (!has_room || !Order(*at)) Admit(at);
  }
}

int RemotePrefill::wait_ms() const {
  const auto first = std::find_if(prompts_.begin(), prompts_.end(),
                                  [](const Prompt& prompt) { return !prompt.ordered; });
  if (first == prompts_.end()) return -1;
  constexpr int64_t kMsNs = 1'000'000;
  const int64_t left_ns = std::max<int64_t>(0, first->since_ns + kPatienceNs - NowNs());
  return static_cast<int>(left_ns / kMsNs) + 1;  // rounded up, or it would be asked in vain
}

bool RemotePrefill::HasRoomFor(const Prompt& prompt) const {
  size_t blocks = prompt.needs, sequences = 0;
  for (const Prompt& other : prompts_) {
    if (!other.ordered) continue;
    blocks += other.needs;
    sequences += other.sequences.size();
  }
  const SchedulerStats stats = parts_.scheduler.stats();
  const size_t before = stats.running + stats.waiting + sequences;
  return before == 0 || (blocks <= parts_.pool.available() && before < most_running_);
}

bool RemotePrefill::Order(Prompt& prompt) {
  const Sequence& sequence = *prompt.sequences.front();
  OrderMessage order;
  order.id = prompt.id;
  const size_t tokens = prompt.hashes.size() * parts_.pool.block_tokens() + 1;
  order.tokens.assign(sequence.tokens.begin(),
                      sequence.tokens.begin() + static_cast<ptrdiff_t>(tokens));
  order.salt = sequence.cache_salt;
  order.first_block = static_cast<uint32_t>(prompt.first_block);
  order.priority = sequence.priority;
  prompt.ordered = client_->Order(order);
  if (prompt.ordered) ++stats_.orders;
  return prompt.ordered;
}

RemotePrefill::Prompts::iterator RemotePrefill::Find(uint64_t id) {
  return std::find_if(prompts_.begin(), prompts_.end(),
                      [id](const Prompt& prompt) { return prompt.id == id; });
}

void RemotePrefill::Take(const BlocksMessage& message) {
  const auto prompt = Find(message.id);
  if (prompt == prompts_.end()) return;
  for (const auto& sequence : prompt->sequences)
    if (sequence->scheduled_ns == 0) sequence->scheduled_ns = NowNs();
  if (!Fits(*prompt, message)) return GiveUp(prompt, "the bytes that arrived are not those of it");
  if (!TakeBlocks(*prompt, message))
    GiveUp(prompt, "there was no room for its blocks, or it was taken for running sequences");
}

// Whether the bytes are those that follow what has arrived of some of the prompt's blocks.
bool RemotePrefill::Fits(const Prompt& prompt, const BlocksMessage& message) const {
  if (message.table >= tables_.count() || message.bytes == 0 ||
      message.images.size() % message.bytes != 0)
    return false;
  const std::vector<size_t>& arrived = prompt.arrived[message.table];
  const size_t count = message.images.size() / message.bytes;
  if (message.first > arrived.size() || count > arrived.size() - message.first) return false;
  const auto first = arrived.begin() + message.first;
  return size_t{message.at} + message.bytes <= image_bytes_.blocks[message.table] &&
         std::all_of(first, first + static_cast<ptrdiff_t>(count),
                     [&](size_t bytes) { return bytes == message.at; });
}

// Returns false if there is no room for the blocks, or if others took it.
bool RemotePrefill::TakeBlocks(Prompt& prompt, const BlocksMessage& message) {
  const size_t table = message.table, count = message.images.size() / message.bytes;
  const size_t bytes = size_t{message.at} + message.bytes;
  std::vector<int32_t> blocks;
  while (blocks.size() < count) {
    const auto block = Hold(prompt, table, message.first + blocks.size(),
                            blocks.empty() ? std::nullopt : std::optional(blocks.back()));
    if (!block) break;
    blocks.push_back(*block);
  }
  const bool complete = blocks.size() == count, ends = bytes == image_bytes_.blocks[table];
  parts_.executor.WriteBlocks(blocks, {table, message.at, message.bytes},
                              reinterpret_cast<const std::byte*>(message.images.data()));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t index = message.first + i;
    prompt.arrived[table][index] = bytes;
    if (ends) parts_.pool.Withdraw(blocks[i]);
    tables_.Publish(blocks[i], ends ? prompt.hashes[index] : NameOfPart(prompt, index), table);
  }
  for (size_t i = blocks.size(); i-- > 0;) parts_.pool.Release(blocks[i]);
  stats_.bytes += blocks.size() * message.bytes;
  if (ends && table == 0) stats_.taken_tokens += blocks.size() * parts_.pool.block_tokens();
  return complete;
}

// The block that has the bytes before those that follow, or a new one.
std::optional<int32_t> RemotePrefill::Hold(const Prompt& prompt, size_t table, size_t index,
                                           std::optional<int32_t> after) {
  // One that another prompt has brought meanwhile is taken once more: that is rare, and harmless.
  if (prompt.arrived[table][index] == 0) return parts_.pool.Allocate(after);
  return tables_.Reuse(NameOfPart(prompt, index), table);
}

// Drops blocks of a prompt that will not be completed.
void RemotePrefill::DropParts(const Prompt& prompt) {
  for (size_t table = 0; table < tables_.count(); ++table) {
    for (size_t index = 0; index < prompt.hashes.size(); ++index) {
      const size_t bytes = prompt.arrived[table][index];
      if (bytes == 0 || bytes == image_bytes_.blocks[table]) continue;
      const auto block = tables_.Reuse(NameOfPart(prompt, index), table);
      if (!block) continue;
      parts_.pool.Withdraw(*block);
      parts_.pool.Release(*block);
    }
  }
}

void RemotePrefill::Take(const StateMessage& message) {
  const auto prompt = Find(message.id);
  if (prompt == prompts_.end() || !parts_.states) return;
  if (message.image.size() != image_bytes_.state)
    return GiveUp(prompt, "the state that arrived is not one of this model");
  const auto place = parts_.states->Reserve();
  if (!place) return GiveUp(prompt, "there was no room for its state");
  parts_.executor.WriteState(*place, reinterpret_cast<const std::byte*>(message.image.data()));
  parts_.states->Keep(*place, prompt->hashes.back());
  stats_.bytes += message.image.size();
}

void RemotePrefill::Take(const DoneMessage& message) {
  const auto found = Find(message.id);
  if (found == prompts_.end()) return;
  if (!message.error.empty()) return GiveUp(found, message.error);
  const size_t block_tokens = parts_.pool.block_tokens();
  const size_t all = found->hashes.size() * block_tokens;
  const size_t cached = std::max<size_t>(message.cached_tokens, found->first_block * block_tokens);
  found->sequences.front()->handed_tokens = all - std::min(all, cached);
  Admit(found);
}

// Uses the blocks that arrived whole. Neither need the other engine go on, nor the sequences wait.
void RemotePrefill::GiveUp(Prompts::iterator at, const std::string& why) {
  ++stats_.failed;
  client_->Cancel(at->id);
  LogWarning(StrCat("a prompt of ", at->sequences.front()->tokens.size(),
                    " tokens is computed here: ", why));
  Admit(at);
}

// To the scheduler, with whatever has arrived.
void RemotePrefill::Admit(Prompts::iterator prompt) {
  DropParts(*prompt);
  // Blocks that arrived last were released last: now the last ones of the prefix are evicted first.
  BlockTables::Tables tables(tables_.count());
  const std::span<const BlockHash> hashes = prompt->hashes;
  tables_.TakePrefix(tables, hashes.first(tables_.LongestCached(hashes)));
  tables_.Release(tables);
  for (auto& sequence : prompt->sequences) {
    const auto added = parts_.scheduler.Add(std::move(sequence));
    CHECK(added) << added.error().message;  // it was checked before
  }
  prompts_.erase(prompt);
}

Json RemotePrefill::ToJson() const {
  Json peers = Json::MakeArray();
  for (const PrefillClient::Peer& peer : client_->peers()) {
    Json one = Json::MakeObject();
    one.Set("address", peer.address);
    one.Set("up", peer.up);
    if (!peer.up) one.Set("reason", peer.reason);
    peers.Append(std::move(one));
  }
  Json out = Json::MakeObject();
  out.Set("role", "decode");
  out.Set("prompts_from", std::move(peers));
  return out;
}

}  // namespace pinion
