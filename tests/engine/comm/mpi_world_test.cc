#include "engine/comm/mpi_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace {

int g_offered = 0;

}  // namespace

// In the place of the library's, which offers all that Debian's was built with. It starts nothing:
// only what comes before the first call of MPI can be tested.
extern "C" int MPI_Init_thread(int*, char***, int, int* offered) {
  *offered = g_offered;
  return 0;
}

namespace pinion {
namespace {

using ::testing::HasSubstr;

// The numbers are Open MPI's. Stages of layers and signs of life have threads of their own.
TEST(JoinMpiWorld, RefusesALibraryThatOneThreadAtATimeMayCall) {
  for (const auto& [offered, name] : {std::pair{0, "SINGLE"}, {1, "FUNNELED"}, {2, "SERIALIZED"}}) {
    g_offered = offered;
    const auto world = JoinMpiWorld();
    ASSERT_FALSE(world) << name;
    EXPECT_EQ(world.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(world.error().message,
                HasSubstr(std::string("offers MPI_THREAD_") + name + ", but several threads"));
    EXPECT_THAT(world.error().message, HasSubstr("use a library that offers MPI_THREAD_MULTIPLE"));
  }
}

}  // namespace
}  // namespace pinion
