#include "engine/weights/summary_tables.h"

#include <algorithm>
#include <map>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::KvDtype;

std::string SizesText(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(StrCat(size));
  return Join(sizes, " x ");
}

// A tensor's name without the numbers of its layer and of its expert.
std::string NameInAnyLayer(const TensorSpec& tensor) {
  if (tensor.layer < 0) return tensor.name;
  std::string name = tensor.name;
  const std::string number = StrCat(".", tensor.layer, ".");
  name.replace(name.find(number), number.size(), ".*.");
  constexpr std::string_view kExperts = ".experts.";
  const size_t experts = name.find(kExperts);
  if (experts == std::string::npos) return name;
  const size_t first = experts + kExperts.size(),
               last = name.find_first_not_of("0123456789", first);
  return last > first ? name.replace(first, last - first, "*") : name;
}

}  // namespace

std::string TextTable::Text() const {
  std::string text;
  for (const auto& row : rows_) {
    std::string line = " ";
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string gap(Width(column) - row[column].size(), ' ');
      line += right_[column] == 'r' ? " " + gap + row[column] : " " + row[column] + gap;
      line += ' ';
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

size_t TextTable::Width(size_t column) const {
  size_t width = 0;
  for (const auto& row : rows_)
    if (column < row.size()) width = std::max(width, row[column].size());
  return width;
}

std::string TensorTable(const DecoderSpec& spec) {
  const std::vector<TensorSpec> list = TensorList(spec);
  std::map<std::pair<std::string, std::vector<int64_t>>, uint64_t> copies;
  for (const TensorSpec& tensor : list) ++copies[{NameInAnyLayer(tensor), tensor.shape}];
  TextTable table("llrr");
  table.Row({"tensor", "shape", "copies", "parameters"});
  for (const TensorSpec& tensor : list) {
    const std::string name = NameInAnyLayer(tensor);
    const uint64_t count = std::exchange(copies[{name, tensor.shape}], 0);
    if (count == 0) continue;  // shown already
    table.Row({name, SizesText(tensor.shape), Grouped(count),
               Grouped(count * ElementCount(tensor.shape))});
  }
  return table.Text();
}

std::string ByteTable(const DecoderSpec& spec, bool quantised) {
  const auto longest = static_cast<uint64_t>(spec.max_positions);
  const uint64_t state = StateBytesPerSequence(spec);
  const bool keeps = !spec.bidirectional;
  TextTable table("lrrrr");
  std::vector<std::string> heading = {"dtype", quantised ? "weights, dequantised" : "weights"};
  if (keeps) {
    heading.insert(heading.end(), {"KV per token", StrCat("KV of ", Counted(longest, "token"))});
    if (state > 0) heading.emplace_back("with the state");
  }
  table.Row(std::move(heading));
  const auto row = [&](const char* name, std::string weights, KvDtype kv) {
    std::vector<std::string> cells = {name, std::move(weights)};
    if (keeps) {
      const uint64_t sequence = KvBytesOfSequence(spec, kv, longest);
      cells.insert(cells.end(), {FormatBytes(KvBytesPerToken(spec, kv)), FormatBytes(sequence)});
      if (state > 0) cells.push_back(FormatBytes(sequence + state));
    }
    table.Row(std::move(cells));
  };
  for (const Dtype dtype : kWeightDtypes)
    row(kernels::Name(dtype), FormatBytes(ParameterCount(spec) * kernels::SizeOf(dtype)),
        kernels::KvDtypeOf(dtype));
  for (const KvDtype dtype : kernels::kKvDtypes)
    if (keeps && kernels::IsScaled(dtype)) row(kernels::Name(dtype), "", dtype);
  return table.Text();
}

}  // namespace pinion
