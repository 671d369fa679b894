#include "engine/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/plain_dtype.h"
#include "engine/checkpoint/published.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunkBytes = 4 << 20;  // of rows made and written at once

// A file that is being written.
class Output {
 public:
  static Result<Output> Create(const std::string& path) {
    Descriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd.is_open())
      return Fail(ErrorCode::kIo, StrCat("cannot create '", path, "': ", std::strerror(errno)));
    return Output(std::move(fd), path);
  }

  Status Write(const void* data, size_t bytes) {
    if (!WriteAll(fd_.get(), {static_cast<const char*>(data), bytes})) return Failure();
    return {};
  }
  // Some file systems report a full disk only here.
  Status Close() {
    if (close(fd_.Release()) != 0) return Failure();
    return {};
  }

 private:
  Output(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  tl::unexpected<Error> Failure() const {
    return Fail(errno == ENOSPC || errno == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo,
                StrCat("cannot write '", path_, "': ", std::strerror(errno)));
  }
  Descriptor fd_;
  std::string path_;
};

// The files of a checkpoint being written. They get their names only once all are complete; if that
// fails, they and a folder created for them are removed again.
class Draft {
 public:
  explicit Draft(std::string folder) : folder_(std::move(folder)) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (complete_) return;
    std::error_code ignored;
    for (const std::string& path : paths_) fs::remove(path, ignored);
    for (const std::string& made : made_subfolders_) fs::remove(made, ignored);
    if (made_folder_) fs::remove(folder_, ignored);
  }

  Status MakeFolder() {
    std::error_code failure;
    made_folder_ = fs::create_directories(folder_, failure);
    if (!failure) return {};
    return Fail(ErrorCode::kIo, StrCat("cannot make '", folder_, "': ", failure.message()));
  }
  // Returns the temporary path of the file `name`, which may be in a folder of the folder. If that
  // cannot be made, neither can the file.
  std::string Begin(const std::string& name) {
    if (const size_t slash = name.rfind('/'); slash != std::string::npos) {
      const std::string subfolder = StrCat(folder_, "/", name.substr(0, slash));
      std::error_code ignored;
      if (fs::create_directory(subfolder, ignored)) made_subfolders_.push_back(subfolder);
    }
    names_.push_back(name);
    paths_.push_back(StrCat(folder_, "/", name, ".part"));
    return paths_.back();
  }
  // Renames in the order of Begin, since the last file is the one that makes the folder a model.
  Status Finish() {
    for (size_t i = 0; i < names_.size(); ++i) {
      const std::string path = StrCat(folder_, "/", names_[i]);
      if (rename(paths_[i].c_str(), path.c_str()) != 0)
        return Fail(ErrorCode::kIo, StrCat("cannot name '", path, "': ", std::strerror(errno)));
      paths_[i] = path;
    }
    complete_ = true;
    return {};
  }

 private:
  std::string folder_;
  std::vector<std::string> names_, paths_, made_subfolders_;
  bool made_folder_ = false, complete_ = false;
};

using Shard = std::vector<PublishedTensor>;

// A tensor that is not quantised; its rows are read while they are written.
PublishedTensor Plain(const TensorInfo& info) {
  return {info.name,
          PlainName(info.dtype),
          info.shape,
          ElementCount(info.shape) * kernels::SizeOf(info.dtype),
          {}};
}

// The tensors to write for those of the spec, in the order of the computation.
Result<std::vector<PublishedTensor>> PlanTensors(const DecoderSpec& spec,
                                                 const TensorSource& source,
                                                 const std::optional<QuantScheme>& scheme) {
  constexpr size_t kSuffix = std::string_view(".weight").size();
  std::vector<PublishedTensor> all;
  for (const TensorSpec& tensor : TensorList(spec)) {
    const QuantisedTensor* quantised = source.Quantised(tensor.name);
    if (!quantised) {
      all.push_back(Plain(source.Find(tensor.name).value()));
      continue;
    }
    const std::string module = tensor.name.substr(0, tensor.name.size() - kSuffix);
    PINION_ASSIGN(auto published, PublishLinear(*scheme, module, *quantised));
    for (PublishedTensor& each : published) all.push_back(std::move(each));
  }
  return all;
}

// Puts as many tensors into each shard as fit.
std::vector<Shard> PlanShards(std::vector<PublishedTensor> tensors, uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  uint64_t bytes = 0;
  for (PublishedTensor& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.bytes > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string ShardName(size_t shard, size_t shards) {
  if (shards == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
  return name;
}

// Length and JSON, padded so that the data begins aligned for every dtype.
std::string Header(const Shard& shard) {
  Json header = Json::Object{{"__metadata__", Json::Object{{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const PublishedTensor& tensor : shard) {
    const uint64_t end = offset + tensor.bytes;
    header.object().emplace_back(tensor.name,
                                 Json::Object{{"dtype", tensor.dtype},
                                              {"shape", tensor.shape},
                                              {"data_offsets", Json::Array{offset, end}}});
    offset = end;
  }
  std::string text = header.Dump();
  text.append(kernels::RoundUp(text.size(), 8) - text.size(), ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

Status WriteTensor(const TensorSource& source, const PublishedTensor& tensor, Output& output) {
  if (tensor.data) {
    const std::vector<std::byte> bytes = tensor.data();
    return output.Write(bytes.data(), bytes.size());
  }
  PINION_ASSIGN(const TensorInfo info, source.Find(tensor.name));
  const auto rows = static_cast<size_t>(info.shape[0]);
  const size_t row_bytes = RowElements(info.shape) * kernels::SizeOf(info.dtype);
  const size_t step = std::max<size_t>(1, kChunkBytes / row_bytes);
  std::vector<std::byte> scratch;
  for (size_t row = 0; row < rows; row += step) {
    const size_t count = std::min(step, rows - row);
    PINION_TRY(output.Write(source.Rows(info, row, count, scratch), count * row_bytes));
  }
  return {};
}

Status WriteShard(const TensorSource& source, const Shard& shard, const std::string& path) {
  PINION_ASSIGN(Output output, Output::Create(path));
  const std::string header = Header(shard);
  PINION_TRY(output.Write(header.data(), header.size()));
  for (const PublishedTensor& tensor : shard) PINION_TRY(WriteTensor(source, tensor, output));
  return output.Close();
}

Json Index(const std::vector<Shard>& shards) {
  Json::Object map;
  uint64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const PublishedTensor& tensor : shards[i]) {
      map.emplace_back(tensor.name, ShardName(i, shards.size()));
      bytes += tensor.bytes;
    }
  }
  return Json::Object{{"metadata", Json::Object{{"total_size", bytes}}},
                      {"weight_map", std::move(map)}};
}

Status CheckSpace(const std::string& folder, const std::vector<Shard>& shards) {
  uint64_t bytes = 0;
  for (const Shard& shard : shards)
    for (const PublishedTensor& tensor : shard) bytes += tensor.bytes;
  struct statvfs disk;
  if (statvfs(folder.c_str(), &disk) != 0) return {};  // unknown: a write will fail instead
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (bytes <= free) return {};
  return Fail(ErrorCode::kExhausted,
              StrCat("the weights take ", FormatBytes(bytes), ", but the disk of '", folder,
                     "' has only ", FormatBytes(free), " free; make room or name another folder"));
}

}  // namespace

Status CheckHoldsNoModel(const std::string& folder) {
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"})
    if (std::error_code ignored; fs::exists(StrCat(folder, "/", name), ignored))
      return Fail(ErrorCode::kUsage, StrCat("'", folder, "' already holds ", name,
                                            "; name a folder that does not hold a model"));
  return {};
}

Status WriteModelFolder(const DecoderSpec& spec, const TensorSource& source,
                        const std::optional<QuantScheme>& scheme,
                        const std::vector<NamedText>& texts, const std::string& folder,
                        uint64_t shard_bytes) {
  PINION_TRY(CheckHoldsNoModel(folder));
  PINION_ASSIGN(auto tensors, PlanTensors(spec, source, scheme));
  const auto shards = PlanShards(std::move(tensors), shard_bytes);
  Draft draft(folder);
  PINION_TRY(draft.MakeFolder());
  PINION_TRY(CheckSpace(folder, shards));
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = ShardName(i, shards.size());
    LogInfo(StrCat("writing ", folder, "/", name));
    PINION_TRY(WriteShard(source, shards[i], draft.Begin(name)));
  }
  if (shards.size() > 1)
    PINION_TRY(
        WriteFile(draft.Begin("model.safetensors.index.json"), Index(shards).Dump(2) + "\n"));
  for (const NamedText& text : texts) PINION_TRY(WriteFile(draft.Begin(text.name), text.text));
  return draft.Finish();
}

}  // namespace pinion
