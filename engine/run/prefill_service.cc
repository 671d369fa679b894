#include "engine/run/prefill_service.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// A message holds about so much, and about so much waits in the sockets: enough to keep a link of
// 100 Gbit/s busy during a step of some milliseconds.
constexpr size_t kServiceMessageBytes = size_t{8} << 20;
constexpr size_t kMostUnsent = size_t{64} << 20;

}  // namespace

PrefillService::PrefillService(Parts parts, std::shared_ptr<PrefillServer> server)
    : parts_(std::move(parts)),
      tables_(parts_.pool, parts_.reaches),
      image_bytes_(parts_.executor.image_bytes()),
      server_(std::move(server)) {}

PrefillService::~PrefillService() {
  for (const Filled& filled : filled_) parts_.pool.Release(filled.block);
}

void PrefillService::BeforeStep(int64_t) {
  while (auto arrived = server_->Next()) {
    if (arrived->order)
      Begin(arrived->id, std::move(*arrived->order));
    else
      Cancel(arrived->id);
  }
  Send();
}

void PrefillService::Begin(uint64_t id, OrderMessage message) {
  ++stats_.orders;
  Order order{.their_id = message.id};
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id | kOwned;
  sequence->tokens = std::move(message.tokens);
  sequence->before_first = HashSalt(message.salt);
  sequence->priority = message.priority;
  sequence->hands_over = true;
  sequence->params.max_tokens = 1;
  sequence->params.temperature = 0;
  sequence->params.ignore_eos = true;
  sequence->arrived_ns = NowNs();
  order.sequence = sequence.get();
  order.first_block = message.first_block;
  order.blocks = (std::max<size_t>(1, sequence->tokens.size()) - 1) / parts_.pool.block_tokens();
  Status added = CheckTokens(sequence->tokens);
  if (added) added = parts_.scheduler.Add(std::move(sequence));
  if (!added) {
    order.sequence = nullptr;
    order.error = added.error().message;
  }
  const auto at = orders_.emplace(id, std::move(order)).first;
  if (!added) Finish(at);
}

Status PrefillService::CheckTokens(const std::vector<int32_t>& tokens) const {
  for (const int32_t token : tokens)
    if (token < 0 || token >= parts_.vocabulary)
      return Fail(ErrorCode::kUsage, StrCat("token ", token, " is outside the vocabulary of ",
                                            parts_.vocabulary, " tokens"));
  return {};
}

void PrefillService::Cancel(uint64_t id) {
  const auto found = orders_.find(id);
  if (found == orders_.end()) return;
  if (found->second.sequence) parts_.abort(id | kOwned);
  for (const Filled& filled : filled_)
    if (filled.order == id) parts_.pool.Release(filled.block);
  std::erase_if(filled_, [id](const Filled& filled) { return filled.order == id; });
  ++stats_.failed;
  orders_.erase(found);
}

void PrefillService::AfterStep(const std::vector<std::unique_ptr<Sequence>>& finished) {
  for (auto& [id, order] : orders_)
    if (order.sequence) TakeFilled(id, order);
  for (const auto& sequence : finished) {
    if (!Owns(sequence->id)) continue;
    const auto found = orders_.find(sequence->id & ~kOwned);
    if (found == orders_.end()) continue;
    Order& order = found->second;
    order.hashes = sequence->hashes;
    order.cached_tokens = sequence->cached_prompt_tokens;
    order.sequence = nullptr;
  }
  Send();
}

// The blocks that the order's sequence has filled since the last time, of each table those that a
// token behind the prompt sees.
void PrefillService::TakeFilled(uint64_t id, Order& order) {
  const Sequence& sequence = *order.sequence;
  const size_t full = std::min(order.blocks, sequence.computed / parts_.pool.block_tokens());
  for (; order.taken < full; ++order.taken) {
    if (order.taken < order.first_block) continue;
    for (size_t table = 0; table < tables_.count(); ++table) {
      if (order.taken < tables_.FirstBlock(table, order.blocks)) continue;
      const auto block = tables_.Reuse(sequence.hashes[order.taken], table);
      if (!block) {
        order.error = "the prefix cache was dropped";
        continue;
      }
      filled_.push_back(
          {id, static_cast<uint32_t>(table), static_cast<uint32_t>(order.taken), *block});
      ++order.unsent;
    }
  }
}

void PrefillService::Send() {
  while (!filled_.empty() && server_->unsent_bytes() < kMostUnsent) SendBlocks();
  for (auto at = orders_.begin(); at != orders_.end();) {
    const auto next = std::next(at);
    if (!at->second.sequence && at->second.unsent == 0) Finish(at);
    at = next;
  }
}

// The first of filled_, with those behind it that follow it in the same table.
void PrefillService::SendBlocks() {
  const Filled first = filled_.front();
  std::vector<int32_t> blocks;
  const size_t most = std::max<size_t>(1, kServiceMessageBytes / image_bytes_.block);
  // Tables take turns in filled_.
  for (auto at = filled_.begin(); at != filled_.end() && blocks.size() < most;) {
    if (at->order != first.order) break;
    if (at->table == first.table && at->index == first.index + blocks.size()) {
      blocks.push_back(at->block);
      at = filled_.erase(at);
    } else {
      ++at;
    }
  }
  Order& order = orders_.at(first.order);
  order.unsent -= blocks.size();
  BlocksMessage message{order.their_id, first.table, first.index,
                        std::string(blocks.size() * image_bytes_.block, '\0')};
  parts_.executor.ReadBlocks(blocks, reinterpret_cast<std::byte*>(message.images.data()));
  for (const int32_t block : blocks) parts_.pool.Release(block);
  stats_.bytes += message.images.size();
  if (first.table == 0) stats_.given_tokens += blocks.size() * parts_.pool.block_tokens();
  server_->Send(first.order, std::move(message));
}

void PrefillService::SendState(uint64_t id, const Order& order) {
  if (!parts_.states || order.blocks == 0) return;
  const auto place = parts_.states->Use(order.hashes[order.blocks - 1]);
  if (!place) return;  // the other engine computes the prompt anew
  StateMessage message{order.their_id, std::string(image_bytes_.state, '\0')};
  parts_.executor.ReadState(*place, reinterpret_cast<std::byte*>(message.image.data()));
  parts_.states->Release(*place);
  stats_.bytes += message.image.size();
  server_->Send(id, std::move(message));
}

void PrefillService::Finish(Orders::iterator at) {
  const Order& order = at->second;
  if (order.error.empty())
    SendState(at->first, order);
  else
    ++stats_.failed;
  server_->Send(at->first, DoneMessage{order.their_id, order.error, order.cached_tokens});
  orders_.erase(at);
}

Json PrefillService::ToJson() const {
  Json out = Json::MakeObject();
  out.Set("role", "prefill");
  out.Set("listens", server_->address().Text());
  out.Set("engines", static_cast<uint64_t>(server_->connections()));
  return out;
}

}  // namespace pinion
