#include "engine/host/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/file.h"
#include "engine/base/memory_file.h"
#include "engine/base/progress.h"
#include "engine/base/strings.h"
#include "engine/host/memory.h"
#include "engine/host/runtime_choice.h"

namespace pinion {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack

// The value in brackets of a setting of transparent huge pages; "" if the kernel has none.
std::string HugePageSetting(const std::string& name) {
  const std::string text =
      ReadFile(StrCat("/sys/kernel/mm/transparent_hugepage/", name), 4096).value_or("");
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos) return "";
  return text.substr(begin + 1, end - begin - 1);
}

bool OnDemand() {
  const auto file = MemoryFile::Make("huge page");
  if (!file || ftruncate(file->fd(), kHugePageBytes) != 0) return false;
  const auto page = Pages::Map(file->fd(), 0, kHugePageBytes, Pages::Access::kWrite);
  return page && MakeHuge(page->data(), page->size_bytes());
}

}  // namespace

int HugePageAdvice() {
  const char* wanted = std::getenv(kHugePagesVariable);
  return wanted && std::strcmp(wanted, "0") == 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE;
}

const char* HugePageChoice() { return HugePageAdvice() == MADV_HUGEPAGE ? "on" : "off"; }

bool MakeHuge(std::byte* data, size_t bytes) {
  if (HugePageAdvice() != MADV_HUGEPAGE) return false;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const size_t skipped = (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
  bool all = true;
  for (size_t at = skipped; at + kHugePageBytes <= bytes; at += kHugePageBytes) {
    TouchPages(data + at, 1);  // the huge page comes to lie where its small ones are
    all &= madvise(data + at, kHugePageBytes, kCollapse) == 0;
    progress::Advance();  // there may be a hundred thousand of them
  }
  return all;
}

bool SharedPagesAreHuge() {
  if (HugePageAdvice() != MADV_HUGEPAGE) return false;
  const std::string usual = HugePageSetting("shmem_enabled");
  const bool by_itself = !usual.empty() && usual != "never" && usual != "deny";
  return by_itself || OnDemand();
}

bool PrivatePagesAreHuge() {
  const std::string usual = HugePageSetting("enabled");
  return HugePageAdvice() == MADV_HUGEPAGE && (usual == "always" || usual == "madvise");
}

}  // namespace pinion
