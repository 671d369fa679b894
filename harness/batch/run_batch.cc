#include "harness/batch/run_batch.h"

#include <map>
#include <memory>

#include "engine/base/clock.h"

namespace pinion::harness {
namespace {

constexpr int64_t kLookEveryNs = 250'000'000;
constexpr int kFull = 503;

class Batch {
 public:
  Batch(HttpClient& client, const BatchPlan& plan,
        const std::function<Status(const BatchRequest&, const BatchOutcome&)>& done)
      : client_(client), plan_(plan), done_(done) {}

  Status Run() {
    Look();
    Fill();
    client_.Run();
    return std::move(status_);
  }

 private:
  void Fill() {
    while (status_ && next_ < plan_.requests.size() && running_ < plan_.at_once) Send(next_++);
    if (running_ == 0) client_.CancelTimers();  // nothing is left to look at
  }

  void Send(size_t index) {
    const BatchRequest& request = plan_.requests[index];
    HttpCall call;
    call.path = request.url;
    call.body = request.body.Dump();
    call.timeout_s = plan_.timeout_s;
    auto answer = std::make_shared<std::string>();
    call.on_body = [answer](std::string_view bytes, int64_t) { answer->append(bytes); };
    call.on_end = [this, index, answer](const HttpEnd& end) { Take(index, *answer, end); };
    ++running_;
    client_.Start(std::move(call));
  }

  void Take(size_t index, const std::string& answer, const HttpEnd& end) {
    if (!status_) {
      --running_;
      return;
    }
    if (end.status == kFull && MayRetry(index)) {
      client_.At(NowNs() + static_cast<int64_t>(plan_.retry_s * 1e9), [this, index] {
        --running_;
        if (status_) Send(index);
      });
      return;
    }
    --running_;
    const bool is_good = end.status >= 200 && end.status < 300;
    BatchOutcome outcome{end.status, {}, end.error};
    auto body = Json::Parse(is_good ? answer : end.refusal);
    if (body) outcome.body = std::move(*body);
    // An answer that broke off is none.
    if (is_good && (!body || !end.error.empty()))
      outcome = {0, {}, end.error.empty() ? "the answer is no JSON" : end.error};
    if (auto taken = done_(plan_.requests[index], outcome); !taken) return End(std::move(taken));
    Fill();
  }

  // Whether the request is still within its time since it was first refused.
  bool MayRetry(size_t index) {
    const int64_t now_ns = NowNs();
    const int64_t since_ns = refused_ns_.emplace(index, now_ns).first->second;
    return now_ns - since_ns < static_cast<int64_t>(plan_.timeout_s * 1e9);
  }

  void End(Status why) {
    status_ = std::move(why);
    client_.CancelTimers();
    client_.CutOff();
  }

  void Look() {
    if (plan_.interrupted()) return End(Fail(ErrorCode::kExhausted, "interrupted"));
    if (const std::string why = plan_.why_ended(); !why.empty())
      return End(Fail(ErrorCode::kFailed, why));
    client_.At(NowNs() + kLookEveryNs, [this] { Look(); });
  }

  HttpClient& client_;
  const BatchPlan& plan_;
  const std::function<Status(const BatchRequest&, const BatchOutcome&)>& done_;
  Status status_;
  size_t next_ = 0;
  int running_ = 0;                       // those that wait to be sent again, too
  std::map<size_t, int64_t> refused_ns_;  // when requests were first refused for want of room
};

}  // namespace

Status RunBatch(HttpClient& client, const BatchPlan& plan,
                const std::function<Status(const BatchRequest&, const BatchOutcome&)>& done) {
  return Batch(client, plan, done).Run();
}

}  // namespace pinion::harness
