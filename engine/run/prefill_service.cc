#include "engine/run/prefill_service.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// A message holds about so much, and about so much waits for each connection: enough to keep a link
// of 100 Gbit/s busy during a step of some milliseconds.
constexpr size_t kServiceMessageBytes = size_t{8} << 20;
constexpr size_t kMostUnsent = size_t{64} << 20;

}  // namespace

PrefillService::PrefillService(Parts parts, std::shared_ptr<PrefillServer> server)
    : parts_(std::move(parts)),
      tables_(parts_.pool, parts_.reaches),
      image_bytes_(parts_.executor.image_bytes()),
      server_(std::move(server)) {}

void PrefillService::BeforeStep(int64_t ns) {
  const int64_t began_ns = NowNs();
  while (auto arrived = server_->Next()) {
    if (arrived->order)
      waiting_.push_back(std::move(*arrived));
    else
      Cancel(arrived->from.id);
    if (NowNs() - began_ns > ns) break;
  }
  Send({});
  while (!waiting_.empty() && !is_behind()) {
    Begin(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void PrefillService::Begin(PrefillServer::Arrived arrived) {
  ++stats_.orders;
  OrderMessage& message = *arrived.order;
  Order order{.to = arrived.from, .their_id = message.id};
  auto sequence = std::make_unique<Sequence>();
  sequence->id = arrived.from.id | kOwnIds;
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
  const auto at = orders_.emplace(arrived.from.id, std::move(order)).first;
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
  const auto waits = std::find_if(waiting_.begin(), waiting_.end(),
                                  [id](const auto& arrived) { return arrived.from.id == id; });
  if (waits != waiting_.end()) waiting_.erase(waits);
  const auto found = orders_.find(id);
  if (found == orders_.end()) return;
  if (found->second.sequence) parts_.abort(id | kOwnIds);
  Drop(found->second);
  ++stats_.failed;
  orders_.erase(found);
}

void PrefillService::Drop(Order& order) {
  filled_ -= order.filled.size();
  order.filled.clear();
}

void PrefillService::DuringStep(const std::vector<Slice>& slices,
                                std::span<const size_t> image_bytes) {
  for (const Slice& slice : slices)
    if (Owns(slice.sequence->id))
      TakeFilled(orders_.at(slice.sequence->id & ~kOwnIds), slice.first + slice.count);
  Send(image_bytes);
}

void PrefillService::AfterStep(const std::vector<std::unique_ptr<Sequence>>& finished) {
  for (auto& [id, order] : orders_) {
    if (order.sequence) TakeFilled(order, order.sequence->computed);
    for (Filled& filled : order.filled) filled.in_step = -1;
  }
  for (const auto& sequence : finished) {
    if (!Owns(sequence->id)) continue;
    const auto found = orders_.find(sequence->id & ~kOwnIds);
    if (found == orders_.end()) continue;
    Order& order = found->second;
    if (order.blocks > 0) order.last = sequence->hashes[order.blocks - 1];
    order.cached_tokens = sequence->cached_prompt_tokens;
    order.sequence = nullptr;
  }
  Send({});
}

// The blocks that the order's sequence has filled since the last time, once so many of its tokens
// are computed; of each table those that a token behind the prompt sees.
void PrefillService::TakeFilled(Order& order, size_t computed) {
  const Sequence& sequence = *order.sequence;
  const size_t block_tokens = parts_.pool.block_tokens();
  const size_t full = std::min(order.blocks, computed / block_tokens);
  for (; order.taken < full; ++order.taken) {
    if (order.taken < order.first_block || !order.error.empty()) continue;
    const bool in_step = order.taken >= sequence.computed / block_tokens;
    for (size_t table = 0; table < tables_.count(); ++table) {
      if (order.taken < tables_.FirstBlock(table, order.blocks)) continue;
      order.filled.push_back({table, order.taken, sequence.hashes[order.taken], 0,
                              in_step ? sequence.tables[table].blocks[order.taken] : -1});
      ++filled_;
    }
  }
}

void PrefillService::Send(std::span<const size_t> written) {
  for (auto at = orders_.begin(); at != orders_.end();) {
    const auto next = std::next(at);
    Order& order = at->second;
    while (*order.to.unsent < kMostUnsent && SendBlocks(order, written)) {
    }
    if (!order.sequence && order.filled.empty()) Finish(at);
    at = next;
  }
}

// Bytes of its image that can be sent. written: of blocks in a step.
size_t PrefillService::Ready(const Filled& filled, std::span<const size_t> written) const {
  return filled.in_step < 0 ? image_bytes_.blocks[filled.table] : written[filled.table];
}

// Sends what is ready of the order's first block of which something is, and of those behind it in
// the same table that are as far. False: there is none, or it is gone, and all fail with it.
bool PrefillService::SendBlocks(Order& order, std::span<const size_t> written) {
  const auto first =
      std::find_if(order.filled.begin(), order.filled.end(),
                   [&](const Filled& filled) { return filled.sent < Ready(filled, written); });
  if (first == order.filled.end()) return false;
  const size_t ready = Ready(*first, written), at = first->sent, bytes = ready - at;
  const size_t most = std::max<size_t>(1, kServiceMessageBytes / bytes);
  BlocksMessage message{order.their_id,
                        static_cast<uint32_t>(first->table),
                        static_cast<uint32_t>(first->index),
                        static_cast<uint32_t>(at),
                        static_cast<uint32_t>(bytes),
                        {}};
  std::vector<int32_t> blocks, cached;
  for (auto one = first; one != order.filled.end() && blocks.size() < most; ++one) {
    if (one->table != message.table) continue;
    if (one->sent != at || Ready(*one, written) != ready) break;
    int32_t block = one->in_step;
    if (block < 0) {
      block = tables_.Reuse(one->hash, one->table).value_or(-1);
      if (block < 0) break;
      cached.push_back(block);
    }
    blocks.push_back(block);
    one->sent = ready;
  }
  if (blocks.empty()) {
    order.error = "its blocks were evicted before they were sent";
    Drop(order);
    return false;
  }
  message.images.resize(blocks.size() * bytes);
  parts_.executor.ReadBlocks(blocks, {message.table, at, bytes},
                             reinterpret_cast<std::byte*>(message.images.data()));
  for (const int32_t block : cached) parts_.pool.Release(block);
  stats_.bytes += message.images.size();
  if (ready == image_bytes_.blocks[message.table]) ForgetSent(order);
  server_->Send(order.to, std::move(message));
  return true;
}

// Blocks all of whose bytes are sent.
void PrefillService::ForgetSent(Order& order) {
  std::erase_if(order.filled, [&](const Filled& filled) {
    if (filled.sent < image_bytes_.blocks[filled.table]) return false;
    if (filled.table == 0) stats_.given_tokens += parts_.pool.block_tokens();
    --filled_;
    return true;
  });
}

void PrefillService::SendState(Order& order) {
  if (!parts_.states || order.blocks == 0) return;
  const auto place = parts_.states->Use(order.last);
  if (!place) {
    order.error = "the state behind it was not kept";
    return;
  }
  StateMessage message{order.their_id, std::string(image_bytes_.state, '\0')};
  parts_.executor.ReadState(*place, reinterpret_cast<std::byte*>(message.image.data()));
  parts_.states->Release(*place);
  stats_.bytes += message.image.size();
  server_->Send(order.to, std::move(message));
}

void PrefillService::Finish(Orders::iterator at) {
  Order& order = at->second;
  if (order.error.empty()) SendState(order);
  if (!order.error.empty()) ++stats_.failed;
  server_->Send(order.to, DoneMessage{order.their_id, order.error, order.cached_tokens});
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
