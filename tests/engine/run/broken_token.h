#pragma once

// Checkpoints whose weights are not numbers: those of one token, so that only the requests that
// have it come to NaN.

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/check.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/tensors.h"
#include "tests/engine/decoder/golden.h"

namespace pinion {

// A copy of a checkpoint in which the embedding of one token is NaN. With a tied head, which has
// the same row, that token's logit would be NaN in every request.
class BrokenToken {
 public:
  BrokenToken(const std::string& original, int32_t token)
      : folder_(::testing::TempDir() + "/pinion_broken_token_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(original, folder_, std::filesystem::copy_options::recursive);
    const auto source = OpenSafetensors(folder_).value();
    const std::string name = NameIn(*source, FindModel(folder_).value().spec.names.embedding);
    const TensorInfo info = source->Find(name).value();
    std::fstream file(info.file, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const Json offsets = *Json::Parse(header).value().Find(name)->Find("data_offsets");
    const size_t row_bytes = RowElements(info.shape) * kernels::SizeOf(info.dtype);
    file.seekp(static_cast<std::streamoff>(sizeof header_bytes + header_bytes) +
               offsets.array()[0].integer() + token * static_cast<std::streamoff>(row_bytes));
    file << std::string(row_bytes, '\xff');  // NaN in every type of floats
    CHECK(file.good()) << info.file;
  }
  ~BrokenToken() { std::filesystem::remove_all(folder_); }
  BrokenToken(const BrokenToken&) = delete;
  BrokenToken& operator=(const BrokenToken&) = delete;

  const std::string& folder() const { return folder_; }

 private:
  // A tensor's name in the file, where it may have another beginning.
  static std::string NameIn(const TensorSource& source, const std::string& name) {
    const std::string tail = name.substr(name.rfind('.', name.rfind('.') - 1) + 1);
    for (const std::string& each : source.Names())
      if (each.ends_with(tail)) return each;
    return name;
  }

  std::string folder_;
};

}  // namespace pinion
