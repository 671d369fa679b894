#include "engine/run/masks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/json_lists.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"

namespace pinion {
namespace {

// A front end lets through what takes 1 s of CPU time to compile; beside the engine's threads that
// may be several.
constexpr int64_t kAnswerLimitNs = 5'000'000'000, kStartLimitNs = 30'000'000'000;

}  // namespace

Masks::Masks(GrammarVocabulary vocabulary, std::vector<int> cpus)
    : vocabulary_(std::move(vocabulary)),
      cpus_(std::move(cpus)),
      words_(MaskWords(vocabulary_.size)),
      rows_(kRows) {
  for (size_t row = kRows; row > 0; --row) free_.push_back(static_cast<int32_t>(row - 1));
}

Masks::~Masks() {
  if (memory_) munmap(const_cast<uint32_t*>(memory_), kRows * words_ * sizeof *memory_);
}

Status Masks::EnsureHelper() {
  if (helper_) PollLocked(0);  // an idle one may have died
  if (helper_) return {};
  if (!memory_) {
    // Pages that no sequence needs take no memory.
    const size_t bytes = kRows * words_ * sizeof *memory_;
    PINION_ASSIGN(MemoryFile file, MemoryFile::Make("masks"));
    void* at = ftruncate(file.fd(), static_cast<off_t>(bytes)) == 0
                   ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED)
      return Fail(ErrorCode::kIo, StrCat("cannot map ", FormatBytes(bytes),
                                         " for grammars' masks: ", std::strerror(errno)));
    file_ = std::make_unique<MemoryFile>(std::move(file));
    memory_ = static_cast<const uint32_t*>(at);
  }
  PINION_ASSIGN(helper_, GrammarHelper::Start(vocabulary_, {file_->fd(), kRows}, cpus_));
  starting_ = true;
  asked_.emplace_back();
  limit_ns_ = NowNs() + kStartLimitNs;
  return {};
}

void Masks::Ask(const Json& request, Asked asked) {
  helper_->Send(request);
  if (asked_.empty()) limit_ns_ = NowNs() + kAnswerLimitNs;
  for (const auto& [row, serial] : asked) ++RowOf(row).pending;
  asked_.push_back(std::move(asked));
}

Result<int32_t> Masks::Begin(const Grammar& grammar, size_t most_forced) {
  CHECK(!full());
  PINION_TRY(EnsureHelper());
  Send();  // the row's last sequence may have yet to be ended
  const int32_t row = free_.back();
  free_.pop_back();
  RowOf(row) = {++last_serial_, 0, true, false, {}, {}};
  Json request = Json::MakeObject();
  Json::Array begin{row, grammar.kind, grammar.text, static_cast<int64_t>(most_forced)};
  request.Set("begin", Json(Json::Array{Json(std::move(begin))}));
  Ask(request, {{row, last_serial_}});
  return row;
}

void Masks::Take(int32_t row, std::span<const int32_t> tokens) {
  if (!RowOf(row).failure.empty()) return;
  Json::Array take{row};
  take.insert(take.end(), tokens.begin(), tokens.end());
  takes_.push_back(Json(std::move(take)));
  RowOf(row).forced.clear();
  taken_.emplace_back(row, RowOf(row).serial);
}

void Masks::End(int32_t row) {
  if (helper_) ends_.push_back(row);
  RowOf(row) = {};
  free_.push_back(row);
}

void Masks::Send() {
  if (helper_ && !(takes_.empty() && ends_.empty())) {
    Json request = Json::MakeObject();
    request.Set("end", std::exchange(ends_, {}));
    request.Set("take", std::exchange(takes_, {}));
    Ask(request, std::exchange(taken_, {}));
  }
  ends_.clear();
  takes_.clear();
  taken_.clear();
}

void Masks::Poll(int64_t deadline_ns) {
  if (!helper_ || asked_.empty()) return;
  const std::lock_guard lock(mutex_);
  PollLocked(deadline_ns);
}

void Masks::PollLocked(int64_t deadline_ns) {
  for (bool answered = false; helper_;) {
    const int64_t until = answered || asked_.empty() ? 0 : std::min(deadline_ns, limit_ns_);
    auto answer = helper_->Receive(until);
    if (!answer) return Lose("the process that follows grammars ended");
    if (*answer) {
      OnAnswer(**answer);
      answered = true;
      continue;
    }
    if (!asked_.empty() && NowNs() >= limit_ns_)
      Lose("the process that follows grammars took too long");
    return;
  }
}

void Masks::OnAnswer(const Json& answer) {
  if (asked_.empty()) return Lose("the process that follows grammars answered twice");
  const Asked asked = std::move(asked_.front());
  asked_.pop_front();
  limit_ns_ = NowNs() + kAnswerLimitNs;
  if (std::exchange(starting_, false)) {
    if (const Json* error = answer.Find("error"))
      Lose(StrCat("the process that follows grammars does not start: ", AsText(*error)));
    return;
  }
  const Json* failed = answer.Find("failed");
  const Json* forced = answer.Find("forced");
  for (const auto& [number, serial] : asked) {
    Row& row = RowOf(number);
    if (row.serial != serial) continue;  // it ended meanwhile
    CHECK(row.pending > 0);
    --row.pending;
    row.begun = true;
    const Json* why = failed ? failed->Find(std::to_string(number)) : nullptr;
    if (!failed)
      row.failure = "the grammar cannot be followed";
    else if (why)
      row.failure = AsText(*why);
    else
      row.forced = TokensOf(forced ? forced->Find(std::to_string(number)) : nullptr);
  }
}

// The tokens at the front of a list, up to the first entry that is not a token of the vocabulary;
// empty if `list` is null.
std::vector<int32_t> Masks::TokensOf(const Json* list) const {
  std::vector<int32_t> tokens;
  if (!list || !list->is_array()) return tokens;
  for (const Json& token : list->array()) {
    if (!token.is_int() || token.integer() < 0) break;
    if (token.integer() >= static_cast<int64_t>(vocabulary_.size)) break;
    tokens.push_back(static_cast<int32_t>(token.integer()));
  }
  return tokens;
}

// Only the sequences with grammars end: all others go on as they were.
void Masks::Lose(const std::string& reason) {
  LogWarning(StrCat(reason, "; answers that it constrained end with an error"));
  helper_.reset();
  asked_.clear();
  for (Row& row : rows_) {
    if (!row.used) continue;
    row.pending = 0;
    row.begun = true;
    if (row.failure.empty()) row.failure = reason;
  }
}

std::span<const uint32_t> Masks::Await(int32_t number) {
  const std::lock_guard lock(mutex_);
  const Row& row = RowOf(number);
  if (row.pending > 0) {
    const TraceSpan span("wait for mask");
    while (row.pending > 0) PollLocked(limit_ns_);
  }
  if (!row.failure.empty()) return {};
  return {memory_ + static_cast<size_t>(number) * words_, words_};
}

}  // namespace pinion
