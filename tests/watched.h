#pragma once

#include <cstdlib>

namespace pinion::tests {

// Whether a sanitizer watches what is tested (tests/CMakeLists.txt sets the variable; tests
// themselves are compiled the same for every build). It makes code 5 to 30 times as slow: what a
// test repeats for the sake of a rate, or on every ISA, the plain build repeats.
inline bool Watched() { return std::getenv("PINION_SANITIZED") != nullptr; }

}  // namespace pinion::tests
