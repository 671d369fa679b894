#include "engine/run/remote_prefill.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace pinion {

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
  if (prompt == prompts_.end() || prompt->failed) return;
  for (const auto& sequence : prompt->sequences)
    if (sequence->scheduled_ns == 0) sequence->scheduled_ns = NowNs();
  if (!TakeBlocks(*prompt, message)) Fail(*prompt);
}

// False: they do not belong to the prompt, or there is no room left for them.
bool RemotePrefill::TakeBlocks(Prompt& prompt, const BlocksMessage& message) {
  const size_t count = message.images.size() / image_bytes_.block;
  if (message.table >= tables_.count() || message.images.size() % image_bytes_.block != 0 ||
      message.first > prompt.hashes.size() || count > prompt.hashes.size() - message.first)
    return false;
  std::vector<int32_t> blocks;
  const auto* images = reinterpret_cast<const std::byte*>(message.images.data());
  bool complete = true;
  for (size_t i = 0; i < count; ++i) {
    // One that another prompt has brought meanwhile is taken once more: that is rare, and harmless.
    const auto block =
        parts_.pool.Allocate(blocks.empty() ? std::nullopt : std::optional<int32_t>(blocks.back()));
    if (!block) {
      complete = false;
      break;
    }
    blocks.push_back(*block);
  }
  parts_.executor.WriteBlocks(blocks, images);
  for (size_t i = 0; i < blocks.size(); ++i)
    tables_.Publish(blocks[i], prompt.hashes[message.first + i], message.table);
  for (size_t i = blocks.size(); i-- > 0;) parts_.pool.Release(blocks[i]);
  stats_.bytes += blocks.size() * image_bytes_.block;
  if (message.table == 0) stats_.taken_tokens += blocks.size() * parts_.pool.block_tokens();
  return complete;
}

void RemotePrefill::Take(const StateMessage& message) {
  const auto prompt = Find(message.id);
  if (prompt == prompts_.end() || prompt->failed || !parts_.states) return;
  if (message.image.size() != image_bytes_.state) return Fail(*prompt);
  const auto place = parts_.states->Reserve();
  if (!place) return Fail(*prompt);
  parts_.executor.WriteState(*place, reinterpret_cast<const std::byte*>(message.image.data()));
  parts_.states->Keep(*place, prompt->hashes.back());
  stats_.bytes += message.image.size();
}

void RemotePrefill::Take(const DoneMessage& message) {
  const auto found = Find(message.id);
  if (found == prompts_.end()) return;
  if (!message.error.empty()) {
    if (!found->failed) LogWarning(StrCat("a prompt is computed here: ", message.error));
    Fail(*found);
  }
  const size_t block_tokens = parts_.pool.block_tokens();
  const size_t all = found->hashes.size() * block_tokens;
  const size_t cached = std::max<size_t>(message.cached_tokens, found->first_block * block_tokens);
  if (!found->failed) found->sequences.front()->handed_tokens = all - std::min(all, cached);
  Admit(found);
}

void RemotePrefill::Fail(Prompt& prompt) {
  if (!std::exchange(prompt.failed, true)) ++stats_.failed;
}

// To the scheduler, with whatever has arrived.
void RemotePrefill::Admit(Prompts::iterator prompt) {
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
