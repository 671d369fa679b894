#include "engine/base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/json.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Read {
  std::string name;
  double begin, end;
};

// Recording is once per process: every case has a child of its own. Its exit status is what `body`
// returns, 0 for good.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Trace : public ::testing::Test {
 protected:
  ~Trace() override { std::filesystem::remove(path_); }

  Json Written() const {
    auto json = Json::ParseFile(path_);
    EXPECT_TRUE(json) << json.error().message;
    return json ? *json : Json::MakeObject();
  }

  // The spans of every row, by its heading, in the order of the file.
  std::map<std::string, std::vector<Read>> Rows() const {
    std::map<int64_t, std::string> names;
    std::map<std::string, std::vector<Read>> rows;
    const Json json = Written();
    for (const Json& event : json.Find("traceEvents")->array()) {
      const int64_t tid = event.Find("tid")->integer();
      if (event.Find("name")->string() == "thread_name")
        names[tid] = event.Find("args")->Find("name")->string();
      if (event.Find("ph")->string() != "X") continue;
      const double begin = event.Find("ts")->number();
      rows[names[tid]].push_back(
          {event.Find("name")->string(), begin, begin + event.Find("dur")->number()});
    }
    return rows;
  }

  const std::string path_ = testing::TempDir() + "/trace_test." + std::to_string(getpid());
};

std::vector<std::string> Names(const std::vector<Read>& spans) {
  std::vector<std::string> names;
  for (const Read& span : spans) names.push_back(span.name);
  return names;
}

int RecordTwoThreads(const std::string& path) {
  if (!trace::Begin(path, "test \"x\"")) return 1;
  const auto work = [](const char* name) {
    trace::NameThread(name);
    const TraceSpan outer("outer", "rows", size_t{3});
    { const TraceSpan first("first"); }
    { const TraceSpan second("second"); }
  };
  work("one");
  std::thread(work, "two").join();
  return trace::End() ? 0 : 2;
}

TEST_F(Trace, SpansNestWithinTheirThread) {
  ASSERT_EQ(InChild([&] { return RecordTwoThreads(path_); }), 0);
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& [thread, spans] : rows) {
    ASSERT_THAT(Names(spans), ElementsAre("outer", "first", "second")) << thread;
    EXPECT_LE(spans[0].begin, spans[1].begin);
    EXPECT_LE(spans[1].end, spans[2].begin);
    EXPECT_LE(spans[2].end, spans[0].end);
  }
}

TEST_F(Trace, HasArgumentsAndTheProcessesName) {
  ASSERT_EQ(InChild([&] { return RecordTwoThreads(path_); }), 0);
  const Json json = Written();
  const Json::Array& events = json.Find("traceEvents")->array();
  EXPECT_EQ(events[0].Find("args")->Find("name")->string(), "test \"x\"");
  EXPECT_EQ(events[2].Find("args")->Find("rows")->integer(), 3);
  EXPECT_EQ(events[3].Find("args"), nullptr);
}

TEST_F(Trace, TwoProcessesShareAFile) {
  ASSERT_EQ(InChild([&] {
              if (!trace::Begin(path_, "first")) return 1;
              { const TraceSpan span("before"); }
              const int joined = InChild([&] {
                trace::Join(path_, "second");
                { const TraceSpan span("inside"); }
                return trace::End() ? 0 : 3;
              });
              return trace::End() ? joined : 2;
            }),
            0);
  std::vector<std::string> processes;
  const Json json = Written();
  for (const Json& event : json.Find("traceEvents")->array())
    if (event.Find("name")->string() == "process_name")
      processes.push_back(event.Find("args")->Find("name")->string());
  EXPECT_THAT(processes, ElementsAre("second", "first"));
}

TEST_F(Trace, KeepsTheNewestSpans) {
  ASSERT_EQ(InChild([&] {
              if (!trace::Begin(path_, "test", 3)) return 1;
              trace::NameThread("main");
              for (const char* name : {"a", "b", "c", "d", "e"}) const TraceSpan span(name);
              return trace::End() ? 0 : 2;
            }),
            0);
  EXPECT_THAT(Names(Rows()["main"]), ElementsAre("c", "d", "e"));
}

TEST_F(Trace, RecordsSeveralWindows) {
  const std::string second = path_ + ".second";
  ASSERT_EQ(InChild([&] {
              if (!trace::Begin(path_, "test", 4)) return 1;
              trace::NameThread("main");
              auto across = std::make_unique<TraceSpan>("across");
              for (const char* name : {"a", "b"}) const TraceSpan span(name);
              if (!trace::End()) return 2;
              { const TraceSpan span("between"); }
              if (!trace::Begin(second, "test", 4)) return 3;
              across.reset();  // it began in the first window: it belongs to neither
              for (const char* name : {"c", "d", "e"}) const TraceSpan span(name);
              return trace::End() ? 0 : 4;
            }),
            0);
  EXPECT_THAT(Names(Rows()["main"]), ElementsAre("a", "b"));
  std::filesystem::rename(second, path_);
  EXPECT_THAT(Names(Rows()["main"]), ElementsAre("c", "d", "e"));
}

// The reader checks what it copied: a span with the name of one and the times of another would not
// nest.
TEST_F(Trace, WritesWholeSpansWhileAThreadGoesOn) {
  ASSERT_EQ(InChild([&] {
              std::atomic<bool> stop{false};
              std::thread busy([&] {
                trace::NameThread("busy");
                while (!stop) const TraceSpan span("span", "value", size_t{7});
              });
              int failed = 0;
              for (int round = 0; round < 50 && !failed; ++round) {
                if (!trace::Begin(path_, "test", 64)) failed = 1;
                while (!failed && !trace::on()) std::this_thread::yield();
                if (!trace::End()) failed = 2;
                const auto json = Json::ParseFile(path_);
                if (!json) failed = 3;
                double last = 0;
                for (const Json& event : json->Find("traceEvents")->array()) {
                  if (event.Find("ph")->string() != "X") continue;
                  if (event.Find("ts")->number() + 0.001 < last) failed = 4;
                  last = event.Find("ts")->number() + event.Find("dur")->number();
                }
              }
              stop = true;
              busy.join();
              return failed;
            }),
            0);
}

TEST_F(Trace, RecordsNothingBeforeBeginOrAfterEnd) {
  ASSERT_EQ(InChild([&] {
              { const TraceSpan span("early"); }
              if (!trace::Begin(path_, "test")) return 1;
              trace::NameThread("main");
              { const TraceSpan span("right"); }
              if (!trace::End() || trace::on()) return 2;
              { const TraceSpan span("late"); }
              return trace::End() ? 0 : 3;  // a second time: nothing to do
            }),
            0);
  EXPECT_THAT(Names(Rows()["main"]), ElementsAre("right"));
}

TEST_F(Trace, RefusesPathsThatAreNotRegularFiles) {
  const auto in_nothing = trace::Begin("/no/such/folder/trace.json", "test");
  ASSERT_FALSE(in_nothing);
  EXPECT_THAT(in_nothing.error().message, HasSubstr("'/no/such/folder/trace.json'"));
  const auto device = trace::Begin("/dev/null", "test");
  ASSERT_FALSE(device);
  EXPECT_THAT(device.error().message, HasSubstr("not a regular file"));
  EXPECT_FALSE(trace::on());
}

TEST_F(Trace, DoesNotAppendToAFileChangedMeanwhile) {
  EXPECT_EQ(InChild([&] {
              if (!trace::Begin(path_, "test")) return 1;
              { const TraceSpan span("a"); }
              if (std::FILE* file = std::fopen(path_.c_str(), "w")) {
                std::fputs("something else entirely", file);
                std::fclose(file);
              }
              return trace::End() ? 2 : 0;
            }),
            0);
}

}  // namespace
}  // namespace pinion
