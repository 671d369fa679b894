#pragma once

#include <cstddef>

// A test binary that links counted_heap.cc counts what operator new gives out.
namespace pinion::tests {

// The most bytes that were held at once since the last ResetHeapPeak, which returns what is held
// now.
size_t HeapPeak();
size_t ResetHeapPeak();

}  // namespace pinion::tests
