#include <sanitizer/asan_interface.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/checkpoint/model.h"
#include "engine/spec/tensor_list.h"
#include "tests/counted_heap.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

// Stands between the bytes of a file's parts.
constexpr std::string_view kNextPart = "--part--";
constexpr size_t kMostParts = 4;

// The folder of an input's files, of this process alone.
class Folder {
 public:
  Folder() {
    std::string pattern = TemporaryFolder() + "/pinion-fuzz-XXXXXX";
    CHECK(mkdtemp(pattern.data())) << pattern;
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Writes the parts under the names of parts; a file of one part under any. The path of the first.
std::string Write(std::string_view bytes) {
  static const Folder folder;
  std::vector<std::string_view> parts;
  for (size_t next = 0; parts.size() + 1 < kMostParts;
       bytes.remove_prefix(next + kNextPart.size())) {
    next = bytes.find(kNextPart);
    if (next == bytes.npos) break;
    parts.push_back(bytes.substr(0, next));
  }
  parts.push_back(bytes);
  std::string first;
  for (size_t part = parts.size(); part > 0; --part) {
    const std::string name = parts.size() == 1 ? std::string("model.gguf")
                                               : "model-0000" + std::to_string(part) + "-of-0000" +
                                                     std::to_string(parts.size()) + ".gguf";
    first = folder.path() / name;
    std::ofstream(first, std::ios::binary) << parts[part - 1];
  }
  return first;
}

// Lets AddressSanitizer see reads behind a file, in its mapping's last page.
class Guarded {
 public:
  explicit Guarded(std::shared_ptr<const GgufFile> gguf) : gguf_(std::move(gguf)) {
    for (const auto& file : gguf_->files)
      ASAN_POISON_MEMORY_REGION(file->data() + file->size_bytes(), Rest(*file));
  }
  ~Guarded() {
    for (const auto& file : gguf_->files)
      ASAN_UNPOISON_MEMORY_REGION(file->data() + file->size_bytes(), Rest(*file));
  }
  bool Holds(const std::byte* begin, size_t bytes) const {
    return std::any_of(gguf_->files.begin(), gguf_->files.end(), [&](const auto& file) {
      return begin >= file->data() && begin + bytes <= file->data() + file->size_bytes();
    });
  }

 private:
  static size_t Rest(const MappedFile& file) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (page - file.size_bytes() % page) % page;
  }
  std::shared_ptr<const GgufFile> gguf_;
};

constexpr size_t kRowsAtOnce = 7;

// Reads every value; what is not copied must lie in the file.
void ReadRows(const TensorSource& source, const TensorInfo& info, const Guarded& file) {
  const auto rows = static_cast<size_t>(info.shape.front());
  const size_t row_bytes = RowElements(info.shape) * kernels::SizeOf(info.dtype);
  for (size_t row = 0; row < rows; row += kRowsAtOnce) {
    const size_t count = std::min(kRowsAtOnce, rows - row), bytes = count * row_bytes;
    std::vector<std::byte> scratch;
    const std::byte* data = source.Rows(info, row, count, scratch);
    const bool copied = data == scratch.data() && bytes <= scratch.size();
    CHECK(copied || file.Holds(data, bytes)) << info.name << " row " << row;
    volatile std::byte last{};  // so that nothing is left unread
    for (size_t i = 0; i < bytes; ++i) last = data[i];
    (void)last;
  }
  source.Release(info, 0, rows);
}

// Codes keep the range for which kernels are chosen.
void ReadCodes(const QuantisedTensor& tensor, const std::string& name) {
  std::vector<int8_t> codes(tensor.columns());
  std::vector<float> scales(tensor.groups()), offsets(tensor.groups());
  const auto [lowest, highest, has_offsets, scale_type, e4m3] = tensor.range();
  for (size_t row = 0; row < tensor.rows(); ++row) {
    tensor.Read(row, 1, codes.data(), scales.data(), offsets.data());
    for (const int8_t code : codes) CHECK(code >= lowest && code <= highest) << name << int{code};
    for (const float offset : offsets) CHECK(has_offsets || offset == 0) << name << offset;
  }
}

// One line, which names the file.
void CheckError(const Error& error, const std::string& path) {
  constexpr size_t kLongest = 2000;
  CHECK(error.message.size() <= kLongest + 2 * path.size()) << error.message.size();
  CHECK(error.message.find('\n') == std::string::npos) << error.message;
  CHECK(error.message.find(path.substr(0, path.rfind('/'))) != std::string::npos) << error.message;
}

// A value of one byte becomes a Json of 40, which is copied to the configuration; a layer is a few
// hundred bytes there, and there may be kMaxLayers of them. A tensor of the spec has its names and
// places in the lists that are kept while it is sought: 1 kB.
constexpr size_t kMostTimes = 160, kOfLayers = 1 << 20, kOfTensor = 1024;

Result<ModelFiles> Find(const std::string& path, size_t bytes) {
  const size_t before = tests::ResetHeapPeak();
  auto files = FindModel(path);
  const size_t took = tests::HeapPeak() - before;
  CHECK(took <= kMostTimes * bytes + kOfLayers) << took << " of " << bytes;
  return files;
}

Result<std::unique_ptr<TensorSource>> Open(const ModelFiles& files, size_t bytes) {
  const size_t before = tests::ResetHeapPeak();
  auto source = OpenWeights(files);
  const size_t took = tests::HeapPeak() - before, tensors = TensorList(files.spec).size();
  CHECK(took <= kMostTimes * bytes + kOfTensor * tensors) << took << " of " << bytes;
  return source;
}

}  // namespace

void GgufModel(std::string_view parts) {
  const std::string path = Write(parts);
  const auto files = Find(path, parts.size());
  if (!files) return CheckError(files.error(), path);
  const Guarded guarded(files->gguf);
  const auto source = Open(*files, parts.size());
  if (!source) return CheckError(source.error(), path);
  for (const std::string& name : (*source)->Names()) {
    const auto info = (*source)->Find(name);
    CHECK(info) << info.error().message;
    ReadRows(**source, *info, guarded);
    if (const QuantisedTensor* codes = (*source)->Quantised(name)) ReadCodes(*codes, name);
  }
}

}  // namespace pinion::fuzz
