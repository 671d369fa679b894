#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/impl/tables.h"

namespace pinion::kernels {
namespace {

const Table& Compiled(Isa isa) { return impl::kScalarTable; }

}  // namespace

const Table& TableFor(Isa isa) {
  const std::vector<Isa>& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), isa) == usable.end()) {
    std::fprintf(stderr, "kernels: the table of %s was asked for, which cannot run here\n",
                 Name(isa));
    std::abort();
  }
  return Compiled(isa);
}

}  // namespace pinion::kernels
