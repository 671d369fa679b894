// The client of the grammar helper.

#include "engine/text/grammar.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/text/frames.h"
#include "engine/text/helper_process.h"

namespace pinion {

extern const char* const kGrammarHelperSource;
extern const char* const kStructuralTagsSource;

namespace {

constexpr int64_t kCheckLimitNs = 2'000'000'000;
// A large tokenizer takes some hundreds of MiB, each grammar up to a hundred.
constexpr uint64_t kMaxGrammarBytes = uint64_t{4} << 30;

// The folder that holds llguidance: beside a built binary, or below an installed one's prefix;
// empty if it is nowhere.
std::string Packages() {
  const std::filesystem::path binary = SelfPath();
  for (const char* place : {"grammar-env", "../lib/pinion/grammar-env"}) {
    const auto folder = binary.parent_path() / place;
    std::error_code ignored;
    if (std::filesystem::exists(folder / "llguidance", ignored)) return folder.string();
  }
  return {};
}

Result<Json> OpenRequest(const GrammarVocabulary& vocabulary, GrammarHelper::Rows rows) {
  Json open = Json::MakeObject();
  open.Set("vocabulary", static_cast<uint64_t>(vocabulary.size));
  open.Set("eos_ids", Json(vocabulary.eos_ids));
  open.Set("file", vocabulary.file);
  if (vocabulary.file.empty()) {
    PINION_ASSIGN(std::string tokenizer, vocabulary.make_tokenizer());
    open.Set("tokenizer", std::move(tokenizer));
  }
  Json memory = Json::MakeObject();
  memory.Set("fd", kHelperPassed);
  memory.Set("count", static_cast<uint64_t>(rows.count));
  Json request = Json::MakeObject();
  request.Set("open", std::move(open));
  request.Set("rows", std::move(memory));
  return request;
}

tl::unexpected<Error> CannotStart(const std::string& why) {
  return Fail(ErrorCode::kIo,
              StrCat("the grammar helper does not start: ", why, "; want ", kSystemPython,
                     " of version 3.10 or later, and llguidance as scripts/build installs it"));
}

}  // namespace

Status CanFollowGrammars(const GrammarVocabulary& vocabulary) {
  if (Packages().empty())
    return Fail(
        ErrorCode::kUnsupported,
        StrCat("constrained output needs the Python package llguidance, which is not beside '",
               SelfPath(), "'; build with scripts/build, which installs it"));
  if (vocabulary.file.empty() && !vocabulary.make_tokenizer)
    return Fail(
        ErrorCode::kUnsupported,
        "constrained output needs a tokenizer.json, and the model's folder has none; add one");
  if (vocabulary.eos_ids.empty())
    return Fail(
        ErrorCode::kUnsupported,
        "constrained output needs a model with an end-of-sequence token; add eos_token_id to "
        "its generation_config.json");
  return {};
}

uint64_t GrammarHelperBytes(const GrammarVocabulary& vocabulary) {
  // Llama 3's 128,256 tokens take 225 MB, Python itself 11.
  constexpr uint64_t kPythonBytes = uint64_t{16} << 20, kTokenBytes = 1800;
  return CanFollowGrammars(vocabulary) ? kPythonBytes + kTokenBytes * vocabulary.size : 0;
}

struct GrammarHelper::State {
  HelperProcess helper;
  std::string unsent, unread;  // parts of frames

  // Sends what the socket takes now.
  Status Flush() {
    size_t sent = 0;
    while (sent < unsent.size()) {
      const ssize_t put = send(helper.socket.get(), unsent.data() + sent, unsent.size() - sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put >= 0)
        sent += static_cast<size_t>(put);
      else if (errno == EAGAIN)
        break;
      else if (errno != EINTR)
        return Fail(ErrorCode::kIo, StrCat("cannot write: ", std::strerror(errno)));
    }
    unsent.erase(0, sent);
    return {};
  }

  // False: nothing has arrived.
  Result<bool> Fill() {
    char chunk[16 << 10];
    for (;;) {
      const ssize_t got = recv(helper.socket.get(), chunk, sizeof chunk, MSG_DONTWAIT);
      if (got > 0) {
        unread.append(chunk, static_cast<size_t>(got));
        return true;
      }
      if (got == 0) return Fail(ErrorCode::kIo, "the other side is gone");
      if (errno == EAGAIN) return false;
      if (errno != EINTR)
        return Fail(ErrorCode::kIo, StrCat("cannot read: ", std::strerror(errno)));
    }
  }

  std::optional<std::string> TakeFrame() {
    if (unread.size() < kFrameHeaderBytes) return std::nullopt;
    const size_t bytes = kFrameHeaderBytes + FrameBytes(unread);
    if (unread.size() < bytes) return std::nullopt;
    std::string body = unread.substr(kFrameHeaderBytes, bytes - kFrameHeaderBytes);
    unread.erase(0, bytes);
    return body;
  }

  // False at the deadline.
  bool Await(int64_t deadline_ns) const {
    const int64_t left_ns = deadline_ns - NowNs();
    if (left_ns <= 0) return false;
    const auto events = static_cast<short>(unsent.empty() ? POLLIN : POLLIN | POLLOUT);
    pollfd ready{helper.socket.get(), events, 0};
    poll(&ready, 1, static_cast<int>(std::min(left_ns / 1'000'000 + 1, int64_t{60'000})));
    return true;
  }
};

GrammarHelper::GrammarHelper(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarHelper::~GrammarHelper() = default;

Result<std::unique_ptr<GrammarHelper>> GrammarHelper::Start(const GrammarVocabulary& vocabulary,
                                                            Rows rows,
                                                            const std::vector<int>& cpus) {
  PINION_TRY(CanFollowGrammars(vocabulary));
  PINION_ASSIGN(const Json open, OpenRequest(vocabulary, rows));
  auto process = StartHelper(
      {"grammar-helper",
       {{"structural_tags", kStructuralTagsSource}, {"grammar_helper", kGrammarHelperSource}},
       Packages(),
       kMaxGrammarBytes},
      rows.count > 0 ? std::optional<int>(rows.fd) : std::nullopt, cpus);
  if (!process) return CannotStart(process.error().message);
  auto helper = std::unique_ptr<GrammarHelper>(
      new GrammarHelper(std::make_unique<State>(State{std::move(*process), {}, {}})));
  helper->Send(open);
  return helper;
}

void GrammarHelper::Send(const Json& request) {
  AppendFrame(request.Dump(), state_->unsent);
  static_cast<void>(state_->Flush());  // Receive meets the same error
}

Result<std::optional<Json>> GrammarHelper::Receive(int64_t deadline_ns) {
  for (;;) {
    if (const auto body = state_->TakeFrame()) {
      PINION_ASSIGN(Json answer, Json::Parse(*body));
      return std::optional<Json>(std::move(answer));
    }
    PINION_ASSIGN(const bool more, state_->Fill());
    if (more) continue;
    PINION_TRY(state_->Flush());
    if (!state_->Await(deadline_ns)) return std::optional<Json>();
  }
}

Status GrammarChecker::Start() {
  if (helper_) {
    // An idle one may have died; its next answer would be the first.
    const auto idle = helper_->Receive(0);
    if (idle) return {};
  }
  helper_.reset();
  PINION_ASSIGN(auto helper, GrammarHelper::Start(vocabulary_, {}));
  auto first = helper->Receive(NowNs() + kHelperStartLimitNs);
  if (!first) return CannotStart(first.error().message);
  if (!*first) return CannotStart("it takes too long");
  if (const Json* error = (*first)->Find("error")) return CannotStart(AsText(*error));
  helper_ = std::move(helper);
  return {};
}

Status GrammarChecker::Check(const Grammar& grammar) {
  PINION_TRY(Start());
  Json request = Json::MakeObject();
  request.Set("check", Json(Json::Array{grammar.kind, grammar.text}));
  helper_->Send(request);
  const auto answer = helper_->Receive(NowNs() + kCheckLimitNs);
  if (answer && *answer) {
    const Json* error = (*answer)->Find("error");
    if (!error) return {};
    return Fail(ErrorCode::kUsage, AsText(*error));
  }
  helper_.reset();  // killed: a late answer would be taken for the next one
  return Fail(ErrorCode::kUsage, StrCat("the ", grammar.kind, " is too costly: to check it takes ",
                                        answer ? "more than 2 s" : "more memory than there is",
                                        "; want one with fewer or smaller repetitions"));
}

}  // namespace pinion
