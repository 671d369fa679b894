#include "harness/counters/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

std::vector<pid_t> IdsOf(pid_t root) {
  std::vector<pid_t> ids;
  for (const TreeProcess& process : ProcessTree(root)) ids.push_back(process.id);
  return ids;
}

// The id that a script has written; 0 while there is none.
pid_t Written(const std::string& path) {
  pid_t id = 0;
  std::ifstream(path) >> id;
  return id;
}

// A server's process that computes has a group of its own, a daemon a session.
TEST(ProcessTree, HoldsDescendantsInGroupsOfTheirOwn) {
  const std::string path = StrCat(testing::TempDir(), "/process_tree.", getpid());
  Process::Options options;
  options.arguments = {"/bin/sh", "-c", "setsid -w sh -c 'echo $$ >$0; exec sleep 60' $0", path};
  const auto child = Process::Start(options);
  ASSERT_TRUE(child);
  for (int i = 0; i < 3000 && Written(path) == 0; ++i) usleep(10'000);
  const pid_t grandchild = Written(path);
  ASSERT_NE(grandchild, 0);
  EXPECT_NE(getpgid(grandchild), getpgid(child->pid()));
  EXPECT_THAT(IdsOf(child->pid()), testing::IsSupersetOf({child->pid(), grandchild}));
  EXPECT_THAT(IdsOf(child->pid()), testing::Not(testing::Contains(getpid())));
  EXPECT_THAT(IdsOf(getpid()), testing::IsSupersetOf({getpid(), child->pid(), grandchild}));
  unlink(path.c_str());
  kill(grandchild, SIGKILL);  // it would hold the test's output open for a minute
}

TEST(ProcessTree, OfNobodyIsEmpty) { EXPECT_THAT(IdsOf(1 << 30), testing::IsEmpty()); }

}  // namespace
}  // namespace pinion::harness
