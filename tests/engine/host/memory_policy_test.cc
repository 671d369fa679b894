#include "engine/host/memory_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numaif.h>

#include <cerrno>
#include <cstring>

#include "engine/host/memory.h"
#include "tests/engine/host/imagined.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The calls to the kernel; it refuses with `g_refusal` unless that is 0.
struct Asked {
  int mode;
  std::vector<int> nodes;
};
std::vector<Asked> g_asked;
int g_refusal = 0;

long FakeBind(void*, unsigned long, int mode, const unsigned long* mask, unsigned long most,
              unsigned) {
  Asked asked{mode, {}};
  for (unsigned long node = 0; node + 1 < most; ++node)
    if (mask[node / 64] >> (node % 64) & 1) asked.nodes.push_back(static_cast<int>(node));
  g_asked.push_back(asked);
  errno = g_refusal;
  return g_refusal == 0 ? 0 : -1;
}

class MemoryPolicies : public testing::Test {
 protected:
  void SetUp() override {
    g_asked.clear();
    g_refusal = 0;
  }
};

std::vector<MemoryPolicy> PoliciesOf(MemoryMode mode, const Machine& machine, int ranks) {
  BindingRequest request;
  request.ranks = ranks;
  return PoliciesFor(mode, machine, MakePlan(machine, BudgetOf(machine), request).value());
}

TEST_F(MemoryPolicies, AreOverARanksOwnNodesOrOverAll) {
  const Machine machine = Imagine("pack:2 [numa(memory=1GB)] [numa(memory=4GB)] core:2 pu:1");
  using Nodes = std::vector<int>;
  for (const MemoryMode mode : {MemoryMode::kStrict, MemoryMode::kPreferred}) {
    const auto two = PoliciesOf(mode, machine, 2);
    ASSERT_EQ(two.size(), 2u);
    EXPECT_EQ(two[0], (MemoryPolicy{mode, {0}}));
    EXPECT_EQ(two[1], (MemoryPolicy{mode, {2}})) << "not the node of memory alone beside it";
    EXPECT_EQ(PoliciesOf(mode, machine, 1)[0].nodes, (Nodes{0, 2}));
  }
  EXPECT_EQ(PoliciesOf(MemoryMode::kInterleave, machine, 2)[1].nodes, (Nodes{0, 1, 2, 3}));
  EXPECT_EQ(PoliciesOf(MemoryMode::kLocal, machine, 2)[1], MemoryPolicy{});
  Machine forbidden = machine;
  forbidden.nodes[3].memory_allowed = false;
  EXPECT_EQ(PoliciesOf(MemoryMode::kInterleave, forbidden, 1)[0].nodes, (Nodes{0, 1, 2}));
}

TEST_F(MemoryPolicies, AskTheKernelForTheirNodes) {
  std::byte page[1];
  EXPECT_EQ(SetPolicy(page, 1, {MemoryMode::kLocal}, FakeBind), 0);
  EXPECT_THAT(g_asked, IsEmpty()) << "Pages itself makes memory local";
  SetPolicy(page, 1, {MemoryMode::kStrict, {1, 70}}, FakeBind);
  SetPolicy(page, 1, {MemoryMode::kPreferred, {3}}, FakeBind);
  SetPolicy(page, 1, {MemoryMode::kPreferred, {3, 4}}, FakeBind);
  SetPolicy(page, 1, {MemoryMode::kInterleave, {0, 63}}, FakeBind);
  std::vector<int> modes;
  for (const Asked& asked : g_asked) modes.push_back(asked.mode);
  EXPECT_THAT(modes, ElementsAre(MPOL_BIND, MPOL_PREFERRED, MPOL_PREFERRED_MANY, MPOL_INTERLEAVE));
  EXPECT_THAT(g_asked[0].nodes, ElementsAre(1, 70));
  EXPECT_THAT(g_asked[3].nodes, ElementsAre(0, 63));
}

TEST_F(MemoryPolicies, ThatAreRefusedLeaveMemoryLocalAndSayWhy) {
  const std::vector<MemoryPolicy> asked = {{MemoryMode::kStrict, {0}}, {MemoryMode::kStrict, {1}}};
  const GrantedPolicies all = Grant(asked, FakeBind);
  EXPECT_EQ(all.policies, asked);
  EXPECT_THAT(all.refusal, IsEmpty());
  EXPECT_EQ(g_asked.size(), 2u) << "each is tried";
  g_refusal = EPERM;
  const GrantedPolicies none = Grant(asked, FakeBind);
  EXPECT_THAT(none.policies, ElementsAre(MemoryPolicy{}, MemoryPolicy{}));
  EXPECT_THAT(none.refusal, AllOf(HasSubstr("--memory-policy strict is not in force"),
                                  HasSubstr("mbind for node 0 (Operation not permitted)"),
                                  HasSubstr("CAP_SYS_NICE"), HasSubstr("first touched")));
  g_refusal = EINVAL;
  EXPECT_THAT(Grant(asked, FakeBind).refusal, Not(HasSubstr("CAP_SYS_NICE")));
  EXPECT_THAT(Grant({MemoryPolicy{}}, FakeBind).refusal, IsEmpty()) << "local needs no permission";
}

TEST_F(MemoryPolicies, AreThoseOfThePages) {
  const int node = ImagineMachine("numa:1 core:1 pu:1")->nodes[0].id;
  for (const auto& [mode, kernels] : {std::pair{MemoryMode::kStrict, MPOL_BIND},
                                      {MemoryMode::kPreferred, MPOL_PREFERRED},
                                      {MemoryMode::kInterleave, MPOL_INTERLEAVE}}) {
    const MemoryPolicy policy{mode, {node}};
    if (const std::string refusal = Grant({policy}).refusal; !refusal.empty())
      GTEST_SKIP() << refusal;
    const auto pages = Pages::Allocate(10'000, policy).value();
    int found = -1;
    ASSERT_EQ(get_mempolicy(&found, nullptr, 0, pages.data(), MPOL_F_ADDR), 0)
        << std::strerror(errno);
    EXPECT_EQ(found, kernels) << Name(mode);
    std::memset(pages.data(), 1, pages.size_bytes());
  }
}

TEST_F(MemoryPolicies, HaveNames) {
  for (const char* name : {"local", "strict", "preferred", "interleave"})
    EXPECT_STREQ(Name(MemoryModeOf(name)), name);
}

long RefusedMovePages(int, unsigned long, void**, const int*, int*, int) {
  errno = EPERM;
  return -1;
}

// A container may forbid the question; that is not an answer to it.
TEST(NodesOf, AreUnknownIfTheKernelRefuses) {
  const auto pages = Pages::Allocate(4096).value();
  std::memset(pages.data(), 1, 4096);
  const MemoryNodes nodes = NodesOf(pages.data(), 4096, RefusedMovePages);
  EXPECT_THAT(nodes.bytes_of_node, IsEmpty());
  EXPECT_EQ(nodes.unknown, "the kernel refuses move_pages (Operation not permitted)");
}

}  // namespace
}  // namespace pinion
