#include "harness/store/request_rows.h"

#include <string>
#include <utility>

#include "harness/load/request_record.h"

namespace pinion::harness {

void PutRequests(SQLite::Database& database, int64_t trial,
                 const std::vector<RequestRow>& requests) {
  SQLite::Statement put(database, "INSERT INTO requests VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  for (const RequestRow& row : requests) {
    const RequestRecord& one = row.record;
    const std::string token_us = PackTimes(one.token_ns, one.sent_ns);
    put.reset();
    Binder bind(put);
    bind(trial, row.load, row.level.clients, row.level.rate, one.conversation, one.turn,
         one.scheduled_ns, one.sent_ns, one.ended_ns, one.output_len, one.prompt_tokens,
         one.output_tokens, one.cached_tokens, one.status, one.error, int{one.cut});
    put.bindNoCopy(bind.next(), token_us.data(), static_cast<int>(token_us.size()));
    put.exec();
  }
}

Result<std::vector<RequestRow>> ReadRequests(SQLite::Database& database, const Slot& slot) {
  SQLite::Statement get(
      database,
      "SELECT load,concurrency,rate,conversation,turn,scheduled_ns,sent_ns,ended_ns,"
      "output_len,prompt_tokens,output_tokens,cached_tokens,status,error,cut,token_us "
      "FROM requests WHERE trial = (SELECT id FROM trial WHERE candidate = ? AND copy = ? AND "
      "phase = ? AND round = ? AND attempt = ?) ORDER BY rowid");
  SQLite::bind(get, slot.candidate, slot.copy, Name(slot.phase), slot.round, slot.attempt);
  std::vector<RequestRow> rows;
  while (get.executeStep()) {
    Columns columns(get);
    RequestRow row;
    RequestRecord& one = row.record;
    row.load = columns.Text();
    row.level.clients = columns.Int();
    row.level.rate = columns.Real();
    one.conversation = static_cast<size_t>(columns.Int64());
    one.turn = static_cast<size_t>(columns.Int64());
    one.scheduled_ns = columns.Int64();
    one.sent_ns = columns.Int64();
    one.ended_ns = columns.Int64();
    one.output_len = columns.Int();
    one.prompt_tokens = columns.MaybeInt();
    one.output_tokens = columns.MaybeInt();
    one.cached_tokens = columns.MaybeInt();
    one.status = columns.Int();
    one.error = columns.Text();
    one.cut = columns.Int() != 0;
    PINION_ASSIGN(one.token_ns, UnpackTimes(columns.Text(), one.sent_ns));
    if (one.complete() && one.token_ns.empty())
      return Fail(ErrorCode::kFailed, "a request that was answered has no times of tokens");
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace pinion::harness
