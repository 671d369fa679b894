#include "engine/run/order.h"

#include <utility>

#include "engine/base/wire.h"

namespace pinion {
namespace {

struct OrderHead {
  OrderKind kind;
  uint64_t bytes;
};

// A slice as it is sent.
struct SentSlice {
  uint64_t first_row = 0, rows = 0, first_position = 0;
  int32_t place = 0, begins_from = -1, keeps_in = -1;
  std::vector<std::vector<int32_t>> block_tables;
};

struct SentBatch {
  std::vector<int32_t> tokens, types, logit_rows;
  std::vector<SentSlice> slices;
};

template <typename Archive>
void Fields(Archive& archive, SentSlice& slice) {
  archive(slice.first_row, slice.rows, slice.first_position, slice.place, slice.begins_from,
          slice.keeps_in, slice.block_tables);
}

template <typename Archive>
void Fields(Archive& archive, SentBatch& batch) {
  archive(batch.tokens, batch.types, batch.logit_rows, batch.slices);
}

}  // namespace

void Send(Communicator& world, const Order& order) {
  OrderHead head{order.kind, order.payload.size()};
  world.Broadcast(&head, sizeof head);
  std::string payload = order.payload;
  if (!payload.empty()) world.Broadcast(payload.data(), payload.size());
}

Order AwaitOrder(Communicator& world) {
  OrderHead head{};
  world.Broadcast(&head, sizeof head);
  Order order{head.kind, std::string(head.bytes, '\0')};
  if (head.bytes > 0) world.Broadcast(order.payload.data(), head.bytes);
  return order;
}

std::string Encode(const StepBatch& batch, size_t block_tokens) {
  SentBatch sent{batch.tokens, batch.types, batch.logit_rows, {}};
  for (const StepBatch::Slice& slice : batch.slices) {
    const size_t blocks = (slice.first_position + slice.rows + block_tokens - 1) / block_tokens;
    SentSlice& of = sent.slices.emplace_back(SentSlice{slice.first_row,
                                                       slice.rows,
                                                       slice.first_position,
                                                       slice.place,
                                                       slice.begins_from,
                                                       slice.keeps_in,
                                                       {}});
    for (const int32_t* table : slice.block_tables)
      if (table) of.block_tables.emplace_back(table, table + blocks);
  }
  WireWriter writer;
  writer(sent);
  return writer.bytes();
}

std::optional<DecodedBatch> Decode(const std::string& payload) {
  SentBatch sent;
  WireReader reader(payload);
  reader(sent);
  if (!reader.ok()) return std::nullopt;
  DecodedBatch decoded;
  decoded.batch.tokens = std::move(sent.tokens);
  decoded.batch.types = std::move(sent.types);
  decoded.batch.logit_rows = std::move(sent.logit_rows);
  for (SentSlice& slice : sent.slices) {
    StepBatch::Slice& to = decoded.batch.slices.emplace_back(StepBatch::Slice{slice.first_row,
                                                                              slice.rows,
                                                                              slice.first_position,
                                                                              {},
                                                                              slice.place,
                                                                              slice.begins_from,
                                                                              slice.keeps_in});
    if (slice.block_tables.size() > to.block_tables.size()) return std::nullopt;
    for (size_t table = 0; table < slice.block_tables.size(); ++table) {
      // A vector's elements stay where they are when it is moved.
      decoded.block_tables.push_back(std::move(slice.block_tables[table]));
      to.block_tables[table] = decoded.block_tables.back().data();
    }
  }
  return decoded;
}

}  // namespace pinion
