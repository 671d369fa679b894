#include "engine/host/runtime.h"

#include <gtest/gtest.h>
#include <omp.h>

namespace pinion {
namespace {

TEST(Runtime, NamesTheOpenMpThatThisProgramIsLinkedWith) {
  EXPECT_GE(omp_get_max_threads(), 1);
  EXPECT_NE(LoadedRuntime().openmp.find("omp"), std::string::npos) << LoadedRuntime().openmp;
}

TEST(Runtime, AlwaysNamesAnAllocator) { EXPECT_FALSE(LoadedRuntime().allocator.empty()); }

}  // namespace
}  // namespace pinion
