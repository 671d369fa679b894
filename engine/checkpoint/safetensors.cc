#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/plain_dtype.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

using File = std::shared_ptr<const MappedFile>;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size_bytes()};
}

struct OpenedShard {
  File file;
  std::vector<HeaderEntry> entries;
};

Result<OpenedShard> OpenShard(const std::string& path) {
  PINION_ASSIGN(File file, MappedFile::Open(path));
  if (Text(*file).starts_with("version https://git-lfs"))
    return Fail(
        ErrorCode::kCorrupt,
        StrCat(path, " is a Git LFS pointer, not the weights; fetch them with 'git lfs pull'"));
  auto entries = ReadSafetensorsHeader(Text(*file));
  if (!entries) return Unexpected(std::move(entries).error().In(path));
  return OpenedShard{std::move(file), std::move(*entries)};
}

// Tensors of any number of mapped files, by name.
class MappedSource : public TensorSource {
 public:
  explicit MappedSource(std::string where) : where_(std::move(where)) {}

  void Add(const File& file, HeaderEntry entry) {
    std::string name = entry.name;
    tensors_.insert_or_assign(std::move(name), Tensor{file, std::move(entry)});
  }

  Result<TensorInfo> Find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      return Fail(ErrorCode::kNotFound,
                  StrCat("no tensor '", name, "' among the ", tensors_.size(), " of ", where_));
    const HeaderEntry& entry = found->second.entry;
    const auto dtype = PlainDtype(entry.dtype);
    if (!dtype)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("tensor '", name, "' of ", found->second.file->path(), " is ", entry.dtype,
                         ", want F32, BF16 or F16"));
    return TensorInfo{name, *dtype, entry.shape, found->second.file->path()};
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const Span span = Locate(info, row, count);
    const std::byte* data = span.file->data() + span.offset;
    // The format lets a tensor begin anywhere.
    if (reinterpret_cast<uintptr_t>(data) % kernels::SizeOf(info.dtype) == 0) return data;
    scratch.resize(std::max(scratch.size(), span.bytes));
    if (span.bytes > 0) std::memcpy(scratch.data(), data, span.bytes);
    return scratch.data();
  }

  std::optional<StoredTensor> Stored(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return {};
    const HeaderEntry& entry = found->second.entry;
    const MappedFile& file = *found->second.file;
    return StoredTensor{entry.dtype, entry.shape, file.data() + entry.begin, &file};
  }

  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    const Span span = Locate(info, row, count);
    span.file->Release(span.offset, span.bytes);
  }

 private:
  struct Tensor {
    File file;
    HeaderEntry entry;
  };
  struct Span {
    const MappedFile* file;
    size_t offset, bytes;
  };

  Span Locate(const TensorInfo& info, size_t row, size_t count) const {
    const Tensor& tensor = tensors_.at(info.name);
    const size_t row_bytes = RowElements(info.shape) * kernels::SizeOf(info.dtype);
    return {tensor.file.get(), tensor.entry.begin + row * row_bytes, count * row_bytes};
  }

  std::string where_;
  std::map<std::string, Tensor> tensors_;
};

// Shard names come from a file that somebody else wrote: they must stay in the folder.
Status CheckShardName(const std::string& name) {
  const bool good = name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
                    !name.starts_with('.') && name.ends_with(".safetensors");
  if (good) return {};
  return Fail(ErrorCode::kCorrupt,
              StrCat("shard '", name, "' is not the name of a .safetensors file in this folder"));
}

// Tensor names by shard, from model.safetensors.index.json.
using ShardMap = std::map<std::string, std::vector<std::string>>;

Result<ShardMap> ReadIndex(const std::string& path) {
  const auto in_index = [&](Error error) { return Unexpected(std::move(error).In(path)); };
  PINION_ASSIGN(const Json index, Json::ParseFile(path));
  const Json* map = index.Find("weight_map");
  if (!map || !map->is_object())
    return in_index({ErrorCode::kCorrupt, "'weight_map' is missing or not an object"});
  ShardMap shards;
  std::map<std::string_view, bool> seen;
  for (const auto& [tensor, file] : map->object()) {
    if (!file.is_string())
      return in_index({ErrorCode::kCorrupt, StrCat("tensor '", tensor, "' maps to ",
                                                   file.type_name(), ", want a file name")});
    if (!seen.emplace(tensor, true).second)
      return in_index({ErrorCode::kCorrupt, StrCat("tensor '", tensor, "' occurs twice")});
    if (auto good = CheckShardName(file.string()); !good) return in_index(std::move(good).error());
    shards[file.string()].push_back(tensor);
  }
  return shards;
}

Result<std::unique_ptr<TensorSource>> OpenIndexed(const std::string& folder,
                                                  const std::string& index) {
  PINION_ASSIGN(const ShardMap shards, ReadIndex(index));
  auto source = std::make_unique<MappedSource>(
      StrCat("the ", shards.size(), " shards that ", index, " names"));
  for (const auto& [name, tensors] : shards) {
    auto shard = OpenShard(StrCat(folder, "/", name));
    if (!shard) return Unexpected(std::move(shard).error().In(StrCat("a shard named by ", index)));
    std::map<std::string_view, HeaderEntry*> held;
    for (HeaderEntry& entry : shard->entries) held.emplace(entry.name, &entry);
    for (const std::string& tensor : tensors) {
      const auto found = held.find(tensor);
      if (found == held.end())
        return Fail(ErrorCode::kCorrupt, StrCat(index, " says that tensor '", tensor, "' is in ",
                                                name, ", which does not hold it"));
      source->Add(shard->file, *found->second);
    }
  }
  return source;
}

tl::unexpected<Error> NoWeights(const std::string& folder) {
  for (const char* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (Exists(StrCat(folder, "/", pickled)))
      return Fail(
          ErrorCode::kUnsupported,
          StrCat("'", folder, "' holds ", pickled,
                 ", a Python pickle that Pinion does not read; "
                 "convert it once: load the model with the library that wrote it, transformers or "
                 "sentence-transformers, and save it with safe_serialization=True"));
  return Fail(ErrorCode::kNotFound,
              StrCat("'", folder,
                     "' holds neither model.safetensors nor "
                     "model.safetensors.index.json; download the model's weights into it"));
}

}  // namespace

size_t RowElements(const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return 1;
  return ElementCount({shape.begin() + 1, shape.end()});
}

Result<std::unique_ptr<TensorSource>> OpenSafetensors(const std::string& folder) {
  const std::string whole = folder + "/model.safetensors";
  if (Exists(whole)) return OpenSafetensorsFile(whole);
  const std::string index = whole + ".index.json";
  if (Exists(index)) return OpenIndexed(folder, index);
  return NoWeights(folder);
}

Result<std::unique_ptr<TensorSource>> OpenSafetensorsFile(const std::string& path) {
  PINION_ASSIGN(OpenedShard shard, OpenShard(path));
  auto source = std::make_unique<MappedSource>(path);
  for (HeaderEntry& entry : shard.entries) source->Add(shard.file, std::move(entry));
  return source;
}

}  // namespace pinion
