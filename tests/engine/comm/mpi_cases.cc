// MPI held to what the engine asks of any transport: `mpirun -n 3 mpi_cases`. Exits 1 if a process
// finds it otherwise.

#include <gtest/gtest.h>

#include <cstdio>

#include "engine/comm/world.h"
#include "tests/engine/comm/communicator_cases.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto world = pinion::JoinWorld();
  if (!world || !*world) {
    std::fprintf(stderr, "mpi_cases: start several processes with mpirun\n");
    return 2;
  }
  pinion::testing::ExpectCommunicates(**world);
  const int code = testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  pinion::LeaveWorld(code);
  return code;
}
