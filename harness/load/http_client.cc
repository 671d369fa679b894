#include "harness/load/http_client.h"

#include <curl/curl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "harness/load/event_loop.h"

namespace pinion::harness {
namespace {

constexpr size_t kMaxErrorBytes = 4096, kMaxFetchBytes = 64 << 20;
// Connections that wait for a next request; by default libcurl keeps few.
constexpr long kMostIdle = 65536;

// The beginning of `text` as part of a sentence, without characters that would break the line.
std::string InALine(std::string_view text) {
  constexpr size_t kMostBytes = 300;
  std::string line(Trim(text.substr(0, kMostBytes)));
  for (char& letter : line)
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  return text.size() > kMostBytes ? line + "..." : line;
}

// {"error":{"message":"..."}} or {"error":"..."} -> the message; else the text's first line.
std::string MessageOf(std::string_view body) {
  if (const auto json = Json::Parse(body)) {
    const Json* error = json->Find("error");
    const Json* message = error ? error->Find("message") : nullptr;
    if (!message) message = json->Find("message");
    if (!message) message = error;
    if (message && message->is_string()) return InALine(message->string());
  }
  const std::string_view text = Trim(body);
  return InALine(text.substr(0, text.find('\n')));
}

bool IsGood(int status) { return status >= 200 && status < 300; }

std::string Refusal(int status, std::string_view body) {
  const std::string message = MessageOf(body);
  return message.empty() ? StrCat("HTTP ", status) : StrCat("HTTP ", status, ": ", message);
}

// The lines of a request's header that libcurl would not write by itself.
class Headers {
 public:
  Headers() = default;
  Headers(const Headers&) = delete;
  Headers& operator=(const Headers&) = delete;
  ~Headers() { curl_slist_free_all(list_); }
  void Add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

struct Exchange {
  HttpCall call;
  Handle handle{curl_easy_init(), curl_easy_cleanup};
  std::string url, refusal;
  char error[CURL_ERROR_SIZE] = "";  // libcurl's own words

  int status() const {
    long status = 0;
    curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }
};

// Why the exchange failed; empty if it did not.
std::string ErrorOf(const Exchange& exchange, const ServerUrl& server, CURLcode code) {
  const int status = exchange.status();
  const std::string why = *exchange.error ? exchange.error : curl_easy_strerror(code);
  long reason = 0;
  curl_easy_getinfo(exchange.handle.get(), CURLINFO_OS_ERRNO, &reason);
  if (code == CURLE_OPERATION_TIMEDOUT)
    return StrCat("no complete answer within ", exchange.call.timeout_s, " s");
  if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
      code == CURLE_COULDNT_RESOLVE_PROXY)
    return StrCat("cannot connect to ", server.text, ": ",
                  reason ? std::strerror(static_cast<int>(reason)) : why);
  if (code == CURLE_PEER_FAILED_VERIFICATION)
    return StrCat("the certificate of ", server.text, " is not trusted (", why,
                  "); name its authority with --ca-file, or trust any with --insecure");
  if (status == 0 && code != CURLE_OK) return StrCat("the server sent no HTTP answer: ", why);
  if (!IsGood(status)) return Refusal(status, exchange.refusal);
  return code == CURLE_OK ? "" : StrCat("the answer broke off: ", why);
}

class Client final : public HttpClient {
 public:
  Client(const ServerUrl& url, HttpAccess access) : url_(url), access_(std::move(access)) {
    std::vector<std::string> lines = {"User-Agent: pinion",
                                      "Accept: text/event-stream, application/json"};
    if (!access_.api_key.empty())
      lines.push_back(StrCat("Authorization: Bearer ", access_.api_key));
    for (const std::string& line : lines) {
      get_headers_.Add(line);
      post_headers_.Add(line);
    }
    post_headers_.Add("Content-Type: application/json");
    post_headers_.Add("Expect:");  // a long prompt waits for no permission
  }
  ~Client() override {
    for (const auto& [handle, exchange] : exchanges_) curl_multi_remove_handle(multi_, handle);
    curl_multi_cleanup(multi_);
  }

  Status Open() {
    static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
    multi_ = global == CURLE_OK ? curl_multi_init() : nullptr;
    if (!multi_) return Fail(ErrorCode::kFailed, "cannot start libcurl");
    PINION_ASSIGN(loop_, EventLoop::Make([this](int fd, uint32_t events) { Act(fd, events); }));
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &Client::WatchSocket);
    curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &Client::SetTimer);
    curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMostIdle);
    return {};
  }

  void Start(HttpCall call) override {
    auto exchange = std::make_unique<Exchange>();
    exchange->call = std::move(call);
    CURL* handle = exchange->handle.get();
    SetUp(*exchange);
    curl_multi_add_handle(multi_, handle);
    exchanges_.emplace(handle, std::move(exchange));
  }

  void At(int64_t when_ns, std::function<void()> callback) override {
    loop_->At(when_ns, std::move(callback));
  }
  void CancelTimers() override { loop_->CancelTimers(); }

  void CutOff() override {
    const auto cut = std::move(exchanges_);
    exchanges_.clear();
    for (const auto& [handle, exchange] : cut) {
      const HttpEnd end{exchange->status(), "cut off", NowNs()};
      curl_multi_remove_handle(multi_, handle);
      exchange->call.on_end(end);
    }
  }

  void Run() override {
    while (!exchanges_.empty() || loop_->has_timers()) {
      loop_->Turn(due_ns_);
      if (NowNs() >= due_ns_) {
        due_ns_ = EventLoop::kNever;
        int running = 0;
        curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
      }
      TakeEnded();
    }
  }

 private:
  void SetUp(Exchange& exchange) {
    const std::string& body = exchange.call.body;
    exchange.url = url_.text + exchange.call.path;
    const auto set = [handle = exchange.handle.get()](CURLoption option, auto value) {
      curl_easy_setopt(handle, option, value);
    };
    set(CURLOPT_URL, exchange.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, exchange.error);
    set(CURLOPT_WRITEFUNCTION, &Client::TakeBytes);
    set(CURLOPT_WRITEDATA, &exchange);
    set(CURLOPT_OPENSOCKETFUNCTION, &Client::OpenSocket);
    set(CURLOPT_TIMEOUT_MS, MilliSeconds(exchange.call.timeout_s));
    set(CURLOPT_DNS_CACHE_TIMEOUT, -1L);  // no request waits for a name that is known
    if (url_.is_local) set(CURLOPT_NOPROXY, "*");
    if (!access_.ca_file.empty()) set(CURLOPT_CAINFO, access_.ca_file.c_str());
    set(CURLOPT_SSL_VERIFYPEER, access_.verify ? 1L : 0L);
    set(CURLOPT_SSL_VERIFYHOST, access_.verify ? 2L : 0L);
    set(CURLOPT_HTTPHEADER, (body.empty() ? get_headers_ : post_headers_).get());
    if (body.empty()) return;
    set(CURLOPT_POSTFIELDS, body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  }

  // At least 1: 0 would mean no limit.
  static long MilliSeconds(double seconds) {
    constexpr double kMost = 1e9;  // 12 days
    return std::lround(std::clamp(seconds * 1e3, 1.0, kMost));
  }

  static curl_socket_t OpenSocket(void*, curlsocktype, curl_sockaddr* address) {
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  static size_t TakeBytes(char* bytes, size_t, size_t count, void* data) {
    const int64_t now_ns = NowNs();
    auto& exchange = *static_cast<Exchange*>(data);
    if (!IsGood(exchange.status())) {
      exchange.refusal.append(bytes, std::min(count, kMaxErrorBytes - exchange.refusal.size()));
    } else if (exchange.call.on_body) {
      exchange.call.on_body({bytes, count}, now_ns);
    }
    return count;
  }

  static int WatchSocket(CURL*, curl_socket_t fd, int what, void* self, void*) {
    const uint32_t read = what == CURL_POLL_IN || what == CURL_POLL_INOUT ? unsigned{EPOLLIN} : 0;
    const uint32_t write =
        what == CURL_POLL_OUT || what == CURL_POLL_INOUT ? unsigned{EPOLLOUT} : 0;
    static_cast<Client*>(self)->loop_->Watch(fd, read | write);
    return 0;
  }

  static int SetTimer(CURLM*, long after_ms, void* self) {
    static_cast<Client*>(self)->due_ns_ =
        after_ms < 0 ? EventLoop::kNever : NowNs() + int64_t{after_ms} * 1'000'000;
    return 0;
  }

  void Act(int fd, uint32_t events) {
    const int read = events & EPOLLIN ? CURL_CSELECT_IN : 0;
    const int write = events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
    const int error = events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
    int running = 0;
    curl_multi_socket_action(multi_, fd, read | write | error, &running);
  }

  void TakeEnded() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto ended = exchanges_.extract(message->easy_handle);
      const Exchange& exchange = *ended.mapped();
      const HttpEnd end{exchange.status(), ErrorOf(exchange, url_, code), NowNs(),
                        exchange.refusal};
      curl_multi_remove_handle(multi_, ended.key());
      exchange.call.on_end(end);
    }
  }

  const ServerUrl url_;
  const HttpAccess access_;
  Headers get_headers_, post_headers_;
  std::unique_ptr<EventLoop> loop_;  // outlives multi_, which still takes its sockets from it
  CURLM* multi_ = nullptr;
  int64_t due_ns_ = EventLoop::kNever;  // when libcurl wants to be called
  std::map<CURL*, std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::Make(const ServerUrl& url,
                                                     const HttpAccess& access) {
  auto client = std::make_unique<Client>(url, access);
  PINION_TRY(client->Open());
  return client;
}

Result<std::string> HttpFetch(const ServerUrl& url, const std::string& path, double timeout_s,
                              const HttpAccess& access) {
  PINION_ASSIGN(const auto client, HttpClient::Make(url, access));
  std::string answer;
  HttpEnd ended;
  HttpCall call;
  call.path = path;
  call.timeout_s = timeout_s;
  call.on_body = [&](std::string_view bytes, int64_t) {
    answer += bytes.substr(0, kMaxFetchBytes - answer.size());
  };
  call.on_end = [&](const HttpEnd& end) { ended = end; };
  client->Start(std::move(call));
  client->Run();
  if (ended.error.empty()) return answer;
  const ErrorCode code = ended.status == 404 ? ErrorCode::kNotFound : ErrorCode::kFailed;
  return Fail(code, StrCat("GET ", url.text, path, ": ", ended.error));
}

}  // namespace pinion::harness
