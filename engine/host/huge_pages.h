#pragma once

#include <cstddef>

namespace pinion {

// MADV_HUGEPAGE, or MADV_NOHUGEPAGE if RuntimeChoice says so.
int HugePageAdvice();
// RuntimeChoice's value that is in effect: "on" or "off".
const char* HugePageChoice();

// Makes the part of [data, data + bytes) that is whole huge pages one of them each, on the node on
// which most of the page's bytes are: if none is there yet, on that of the calling thread. For
// memory of files: unlike that of anonymous memory, the kernel's usual setting keeps their pages
// small (shmem_enabled), but it puts them together if told to, from Linux 6.1 on. False if it
// refuses, or if huge pages are not wanted. Other threads may use the memory meanwhile.
bool MakeHuge(std::byte* data, size_t bytes);

// Whether files in memory get huge pages here: the kernel gives them by itself, or on demand.
bool SharedPagesAreHuge();
// Whether anonymous memory does.
bool PrivatePagesAreHuge();

}  // namespace pinion
