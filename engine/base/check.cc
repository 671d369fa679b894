#include "engine/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pinion {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  text_ << file << ':' << line << ": check failed: " << condition << ": ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", text_.str().c_str());
  std::abort();
}

}  // namespace pinion
