#include "harness/load/generator.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/nofile.h"
#include "engine/base/strings.h"
#include "harness/load/sse.h"

namespace pinion::harness {
namespace {

constexpr int64_t kHeartbeatNs = 10'000'000, kProgressNs = 500'000'000, kWatchNs = 50'000'000;

double ThreadCpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// `time_ns` rounded down to whole microseconds after `origin_ns`, as a store keeps it.
int64_t WholeMicroseconds(int64_t time_ns, int64_t origin_ns) {
  return time_ns - (time_ns - origin_ns) % 1000;
}

// Pins the calling thread to `cpus` for the lifetime of the object.
class Pinned {
 public:
  Status To(const std::vector<int>& cpus) {
    sched_getaffinity(0, sizeof before_, &before_);
    if (cpus.empty()) return {};
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus)
      if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
      return Fail(ErrorCode::kUsage,
                  StrCat("cannot run the load generator on CPUs ", FormatCpuList(cpus), ": ",
                         std::strerror(errno), "; name CPUs that this process may use"));
    changed_ = true;
    return {};
  }
  ~Pinned() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }

  static std::vector<int> Now() {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
    return cpus;
  }

 private:
  cpu_set_t before_ = {};
  bool changed_ = false;
};

class Generator {
 public:
  Generator(const LoadedServer& server, const LoadPlan& plan, const DrawnLoad& drawn,
            const LoadHooks& hooks, HttpClient& client)
      : server_(server), plan_(plan), drawn_(drawn), hooks_(hooks), client_(client) {}

  ServerLoadResult Run() {
    result_.open_loop = drawn_.arrival_s.has_value();
    result_.generator.cpus = Pinned::Now();
    const double cpu_s = ThreadCpuSeconds();
    result_.start_ns = NowNs();
    Begin();
    Beat(result_.start_ns + kHeartbeatNs);
    Watch();  // last: if there is nothing to send, it cancels the timers of the others
    client_.Run();
    result_.end_ns = NowNs();
    result_.never_sent = waiting_.size();
    GeneratorLoad& own = result_.generator;
    own.cpu_s = ThreadCpuSeconds() - cpu_s;
    own.cpu_share = own.cpu_s / std::max(1e-9, Elapsed());
    for (const RequestRecord& record : result_.requests)
      own.late_s.push_back(static_cast<double>(record.sent_ns - record.scheduled_ns) * 1e-9);
    return std::move(result_);
  }

 private:
  // Progress of a conversation of the plan.
  struct ActiveConversation {
    size_t conversation = 0, turn = 0;
    Exchanges exchanges;
  };
  // An answer in progress.
  struct Answer {
    std::string text;
    int64_t arrived_ns = 0;  // of the bytes that are read now
    bool has_end = false;    // the server said that it ends
  };

  double Elapsed() const { return SecondsSince(result_.start_ns); }
  // A load without a request would measure nothing: the first one starts in any case.
  bool MayBegin() const {
    return next_ < drawn_.conversations.size() && !ending_ &&
           (next_ == 0 || Elapsed() <= plan_.stop_sending_s);
  }

  void Begin() {
    if (!drawn_.arrival_s) {
      for (int client = 0; client < plan_.concurrency && MayBegin(); ++client)
        Open(next_++, result_.start_ns);
      return;
    }
    ScheduleArrival();
  }

  // One timer at a time: the next arrival.
  void ScheduleArrival() {
    if (next_ >= drawn_.conversations.size() || (*drawn_.arrival_s)[next_] > plan_.stop_sending_s) {
      all_arrived_ = true;
      return;
    }
    const int64_t due_ns =
        result_.start_ns + static_cast<int64_t>((*drawn_.arrival_s)[next_] * 1e9);
    client_.At(due_ns, [this, due_ns] {
      if (plan_.concurrency > 0 && live_ >= static_cast<size_t>(plan_.concurrency)) {
        waiting_.emplace_back(next_++, due_ns);
      } else {
        Open(next_++, due_ns);
      }
      ScheduleArrival();
    });
  }

  void Open(size_t conversation, int64_t due_ns) {
    auto active = std::make_shared<ActiveConversation>();
    active->conversation = conversation;
    active->exchanges.context = drawn_.conversations[conversation].context;
    ++live_;
    result_.most_at_once = std::max(result_.most_at_once, live_);
    Send(active, due_ns);
  }

  void Send(const std::shared_ptr<ActiveConversation>& active, int64_t due_ns) {
    const Turn& turn = drawn_.conversations[active->conversation].turns[active->turn];
    active->exchanges.said.push_back(turn.text);
    const size_t index = result_.requests.size();
    RequestRecord record;
    record.conversation = active->conversation;
    record.turn = active->turn;
    record.output_len = turn.output_len;
    record.scheduled_ns = due_ns;
    HttpCall call;
    call.path = Path(server_.style.endpoint);
    call.body = RequestBody(server_.style, active->exchanges, turn.output_len);
    call.timeout_s = server_.timeout_s;
    auto answer = std::make_shared<Answer>();
    auto events = std::make_shared<SseReader>(
        [this, index, answer](auto data) { TakeEvent(result_.requests[index], data, *answer); });
    call.on_body = [events, answer](std::string_view bytes, int64_t now_ns) {
      answer->arrived_ns = now_ns;
      events->Feed(bytes);
    };
    call.on_end = [this, index, active, answer](const HttpEnd& end) {
      Finish(result_.requests[index], end, answer->has_end);
      Continue(active, answer->text, result_.requests[index]);
    };
    record.sent_ns = NowNs();
    result_.requests.push_back(std::move(record));
    client_.Start(std::move(call));
  }

  void TakeEvent(RequestRecord& record, std::string_view data, Answer& answer) const {
    if (!record.error.empty()) return;
    auto event = ReadStreamEvent(data, server_.style.endpoint);
    if (!event) {
      record.error = event.error().message;
      return;
    }
    if (event->is_token)
      record.token_ns.push_back(WholeMicroseconds(answer.arrived_ns, record.sent_ns));
    answer.has_end |= event->is_end;
    answer.text += event->text;
    if (event->prompt_tokens) record.prompt_tokens = event->prompt_tokens;
    if (event->output_tokens) record.output_tokens = event->output_tokens;
    if (event->cached_tokens) record.cached_tokens = event->cached_tokens;
  }

  void Finish(RequestRecord& record, const HttpEnd& end, bool has_end) {
    record.ended_ns = end.ended_ns;
    record.status = end.status;
    record.cut = ending_ && end.error == "cut off";
    if (record.error.empty()) record.error = end.error;
    if (record.error.empty() && record.token_ns.empty())
      record.error = "the answer ended without a single token; does the server stream?";
    // A server that dies closes its connection, which may look like the end of an answer.
    if (record.error.empty() && !has_end)
      record.error = "the answer broke off: neither a finish_reason nor [DONE] came";
    ++(record.complete() ? completed_ : failed_);
  }

  // The next turn, or the next conversation.
  void Continue(const std::shared_ptr<ActiveConversation>& active, const std::string& answer,
                const RequestRecord& record) {
    const Conversation& conversation = drawn_.conversations[active->conversation];
    const int64_t ended_ns = record.ended_ns;
    const bool goes_on =
        record.complete() && active->turn + 1 < conversation.turns.size() && !ending_ &&
        Elapsed() <= plan_.stop_sending_s &&
        HasRoom(active->exchanges, answer, record, conversation.turns[active->turn + 1]);
    if (goes_on) {
      active->exchanges.said.push_back(answer);
      ++active->turn;
      return Send(active, ended_ns);
    }
    --live_;
    if (drawn_.arrival_s && !waiting_.empty() && !ending_) {
      const auto [next, due_ns] = waiting_.front();
      waiting_.pop_front();
      Open(next, due_ns);
    } else if (!drawn_.arrival_s && MayBegin()) {
      Open(next_++, ended_ns);
    }
    if (Done()) client_.CancelTimers();
  }

  // Whether the server can surely take the next turn. As a text an answer may come to more tokens
  // than it was drawn with, at most one a byte; the question's are as the server counted so far.
  bool HasRoom(const Exchanges& before, const std::string& answer, const RequestRecord& record,
               const Turn& next) const {
    if (server_.longest <= 0 || !record.prompt_tokens) return true;
    size_t bytes = before.context.size();
    for (const std::string& text : before.said) bytes += text.size();
    const double prompt = *record.prompt_tokens;
    const auto size = [](const std::string& text) { return static_cast<double>(text.size()); };
    const double said = std::max(size(answer), static_cast<double>(record.tokens()));
    const double question =
        prompt * size(next.text) / static_cast<double>(std::max<size_t>(1, bytes));
    return prompt + said + question + next.output_len <= server_.longest;
  }

  bool Done() const {
    if (live_ > 0) return false;
    return ending_ || (drawn_.arrival_s ? all_arrived_ && waiting_.empty() : !MayBegin());
  }

  // Checks for the deadline and Ctrl-C, and reports progress.
  void Watch() {
    if (Done()) return client_.CancelTimers();
    const bool stop = hooks_.interrupted();
    const double deadline_s = completed_ + failed_ > 0
                                  ? plan_.deadline_s
                                  : plan_.last_deadline_s.value_or(plan_.deadline_s);
    if ((stop || Elapsed() >= deadline_s) && !ending_) {
      ending_ = true;
      result_.interrupted = stop;
      client_.CancelTimers();
      return client_.CutOff();
    }
    const int64_t now_ns = NowNs();
    if (hooks_.progress && now_ns - told_ns_ >= kProgressNs) {
      told_ns_ = now_ns;
      hooks_.progress(completed_, failed_, Elapsed());
    }
    client_.At(now_ns + kWatchNs, [this] { Watch(); });
  }

  // Measures how late this thread serves its own timers: the measurement's own error.
  void Beat(int64_t due_ns) {
    client_.At(due_ns, [this, due_ns] {
      const int64_t now_ns = NowNs();
      result_.generator.lag_s.push_back(static_cast<double>(now_ns - due_ns) * 1e-9);
      Beat(std::max(due_ns + kHeartbeatNs, now_ns));
    });
  }

  const LoadedServer& server_;
  const LoadPlan& plan_;
  const DrawnLoad& drawn_;
  const LoadHooks& hooks_;
  HttpClient& client_;
  ServerLoadResult result_;
  size_t next_ = 0, live_ = 0, completed_ = 0, failed_ = 0;
  std::deque<std::pair<size_t, int64_t>> waiting_;  // conversation, due
  bool all_arrived_ = false, ending_ = false;
  int64_t told_ns_ = 0;
};

double Seconds(const ServerLoadResult& result) {
  return static_cast<double>(result.end_ns - result.start_ns) * 1e-9;
}

}  // namespace

Result<ServerLoadResult> RunServerLoad(const LoadedServer& server, const LoadPlan& plan,
                                       const LoadHooks& hooks) {
  // Runs with a low limit as well: it may suffice for few requests at once.
  if (const auto limits = RaiseNofile(); !limits) LogWarning(limits.error().message);
  PINION_ASSIGN(const DrawnLoad drawn, Draw(plan, server.scale, server.longest));
  PINION_ASSIGN(const auto client, HttpClient::Make(server.url, server.access));
  Pinned pinned;
  PINION_TRY(pinned.To(hooks.cpus));
  if (hooks.begins) hooks.begins();
  return Generator(server, plan, drawn, hooks, *client).Run();
}

Status FindServedModel(LoadedServer& server) {
  constexpr double kPatienceSeconds = 10;
  PINION_ASSIGN(const std::string text,
                HttpFetch(server.url, "/v1/models", kPatienceSeconds, server.access));
  const auto json = Json::Parse(text);
  const Json* data = json ? json->Find("data") : nullptr;
  const Json* first =
      data && data->is_array() && !data->array().empty() ? &data->array().front() : nullptr;
  const Json* id = first ? first->Find("id") : nullptr;
  if (!id || !id->is_string())
    return Fail(ErrorCode::kFailed, StrCat(server.url.text,
                                           "/v1/models lists no model; name it with "
                                           "--model"));
  server.style.model = id->string();
  if (const Json* longest = first->Find("max_model_len"); longest && longest->is_int())
    server.longest = static_cast<int>(std::clamp<int64_t>(longest->integer(), 0, kMaxLength));
  return {};
}

Status MeasureTokenScale(LoadedServer& server, double deadline_s, const LoadHooks& hooks) {
  constexpr int kWords[] = {16, 80};
  double tokens[2] = {0, 0};
  LoadedServer uncounted = server;
  uncounted.scale = {};  // as many words as tokens
  LoadHooks quiet = hooks;
  quiet.progress = nullptr;
  for (int i = 0; i < 2; ++i) {
    LoadPlan probe{.num_prompts = 1, .deadline_s = deadline_s};
    probe.shape.prompt = Lengths::Fixed(kWords[i]);
    probe.shape.output = Lengths::Fixed(4);
    PINION_ASSIGN(const ServerLoadResult result, RunServerLoad(uncounted, probe, quiet));
    if (result.requests.empty() || result.interrupted)
      return Fail(ErrorCode::kFailed, "interrupted");
    const RequestRecord& record = result.requests.front();
    if (record.cut)
      return Fail(ErrorCode::kTimeout, StrCat("the first request had no whole answer after ",
                                              std::round(Seconds(result) * 10) / 10, " s"));
    if (!record.complete())
      return Fail(ErrorCode::kFailed, StrCat("the first request failed: ", record.error));
    tokens[i] = record.prompt_tokens.value_or(0);
  }
  server.scale = TokenScale::From(kWords[0], tokens[0], kWords[1], tokens[1]);
  return {};
}

}  // namespace pinion::harness
