#include "engine/run/score.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/base/descriptor.h"
#include "engine/base/strings.h"
#include "engine/run/compare.h"
#include "engine/run/not_finite.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// A safetensors file of float32 matrices whose shapes are known beforehand; rows come in any order.
// The header is written last, so that a run that is killed leaves a file that no reader accepts:
// with a header in place, unwritten rows would pass for logits of zero.
class LogitsFile {
 public:
  ~LogitsFile() {
    if (is_ours_) unlink(path_.c_str());
  }

  Status Create(const std::string& path, const std::vector<Prompt>& prompts, size_t vocabulary) {
    path_ = path;
    Json header = Json::MakeObject();
    uint64_t offset = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      starts_.push_back(offset);
      const uint64_t bytes = prompts[i].ids.size() * vocabulary * sizeof(float);
      Json tensor = Json::MakeObject();
      tensor.Set("dtype", "F32");
      tensor.Set("shape", Json::Array{prompts[i].ids.size(), vocabulary});
      tensor.Set("data_offsets", Json::Array{offset, offset + bytes});
      header.Set(StrCat("prompt", i, ".logits"), std::move(tensor));
      offset += bytes;
    }
    header_ = header.Dump();
    header_.append((8 - header_.size() % 8) % 8, ' ');  // the format asks for aligned data
    const uint64_t length = header_.size();
    header_.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
    fd_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd_.is_open()) return Failure("create");
    struct stat info;
    if (fstat(fd_.get(), &info) == 0 && !S_ISREG(info.st_mode))  // a device is not ours to remove
      return Fail(ErrorCode::kUsage,
                  StrCat("cannot write logits to '", path_, "': it is not a regular file"));
    is_ours_ = true;
    // Full size from the start, because the rows of a refused prompt are never written.
    if (ftruncate(fd_.get(), static_cast<off_t>(header_.size() + offset)) != 0)
      return Failure("extend");
    return {};
  }

  Status WriteRow(size_t prompt, size_t row, const float* logits, size_t vocabulary) {
    const uint64_t bytes = vocabulary * sizeof(float);
    return Write(logits, bytes, header_.size() + starts_[prompt] + row * bytes);
  }

  // Call once all rows are written. Does nothing without a file.
  Status Finish() {
    if (!fd_.is_open()) return {};
    PINION_TRY(Write(header_.data(), header_.size(), 0));
    if (close(fd_.Release()) != 0) return Failure("write");  // NFS reports errors only here
    is_ours_ = false;
    return {};
  }

 private:
  Status Write(const void* data, size_t bytes, uint64_t offset) {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = pwrite(fd_.get(), from, bytes, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return Failure("write");
      from += written;
      bytes -= static_cast<size_t>(written);
      offset += static_cast<uint64_t>(written);
    }
    return {};
  }
  tl::unexpected<Error> Failure(std::string_view doing) const {
    return Fail(ErrorCode::kIo, StrCat("cannot ", doing, " '", path_, "': ", std::strerror(errno)));
  }

  std::string path_, header_;
  Descriptor fd_;
  bool is_ours_ = false;  // an unfinished file of ours is removed again
  std::vector<uint64_t> starts_;
};

class Scorer {
 public:
  // dtype: of the model's activations.
  Scorer(const std::vector<Prompt>& prompts, const ScoreOptions& options, std::string dtype)
      : prompts_(prompts),
        top_(static_cast<size_t>(options.top_logprobs)),
        table_(kernels::TableFor(kernels::Isa::kScalar)),
        dtype_(std::move(dtype)),
        errors_(prompts.size()),
        logprobs_(prompts.size()),
        tops_(prompts.size()) {}

  Status OpenLogits(const std::string& path, size_t vocabulary) {
    write_logits_ = true;
    return file_.Create(path, prompts_, vocabulary);
  }

  Status OpenReference(const std::string& path, size_t vocabulary) {
    PINION_ASSIGN(comparison_, Comparison::Open(path, prompts_, vocabulary));
    return {};
  }
  const std::optional<Comparison>& comparison() const { return comparison_; }

  // Logits at `position` predict the token after it.
  void Take(size_t prompt, size_t position, const float* logits, size_t vocabulary) {
    if (write_logits_ && failure_) failure_ = file_.WriteRow(prompt, position, logits, vocabulary);
    if (!errors_[prompt].empty()) return;
    const double normaliser = table_.log_sum_exp(logits, vocabulary);
    if (!std::isfinite(normaliser)) return Drop(prompt, NotFinite("the logits are", dtype_));
    const auto& ids = prompts_[prompt].ids;
    const bool last = position + 1 >= ids.size();
    if (comparison_ && !comparison_->Take(prompt, position, logits, last ? -1 : ids[position + 1]))
      return Drop(prompt,
                  "the reference's logits are not finite; write them again with "
                  "'pinion score REFERENCE --logits'");
    if (last) return;
    const auto next = static_cast<size_t>(ids[position + 1]);
    logprobs_[prompt].push_back(static_cast<double>(logits[next]) - normaliser);
    if (top_ > 0) tops_[prompt].push_back(Best(logits, vocabulary, normaliser));
  }

  const Status& failure() const { return failure_; }
  Status FinishLogits() { return file_.Finish(); }

  Json Line(size_t prompt) const {
    if (!errors_[prompt].empty()) return Json(Json::Object{{"error", errors_[prompt]}});
    Json token_logprobs = Json::MakeArray(), top_logprobs = Json::MakeArray();
    token_logprobs.Append(Json());
    top_logprobs.Append(Json());
    double sum = 0;
    for (size_t i = 0; i < logprobs_[prompt].size(); ++i) {
      sum += logprobs_[prompt][i];
      token_logprobs.Append(logprobs_[prompt][i]);
      top_logprobs.Append(top_ > 0 ? tops_[prompt][i] : Json::MakeArray());
    }
    const auto count = static_cast<double>(logprobs_[prompt].size());
    Json line = Json::MakeObject();
    line.Set("input_ids", prompts_[prompt].ids);
    line.Set("token_logprobs", std::move(token_logprobs));
    line.Set("top_logprobs", std::move(top_logprobs));
    line.Set("perplexity", count > 0 ? Json(std::exp(-sum / count)) : Json());
    if (comparison_) line.Set("compare", comparison_->Line(prompt));
    return line;
  }

 private:
  // Gives the prompt's line up.
  void Drop(size_t prompt, std::string error) {
    errors_[prompt] = std::move(error);
    if (comparison_) comparison_->Drop(prompt);
  }

  Json Best(const float* logits, size_t vocabulary, double normaliser) {
    order_.resize(vocabulary);
    std::iota(order_.begin(), order_.end(), 0);
    const auto end = order_.begin() + static_cast<ptrdiff_t>(std::min(top_, vocabulary));
    std::partial_sort(order_.begin(), end, order_.end(), [&](int32_t a, int32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    Json best = Json::MakeArray();
    for (auto it = order_.begin(); it != end; ++it)
      best.Append(Json::Array{*it, static_cast<double>(logits[*it]) - normaliser});
    return best;
  }

  const std::vector<Prompt>& prompts_;
  const size_t top_;
  const kernels::Table& table_;
  const std::string dtype_;
  std::vector<std::string> errors_;  // of the prompts whose logits are not finite
  bool write_logits_ = false;
  LogitsFile file_;
  std::optional<Comparison> comparison_;
  Status failure_;
  std::vector<std::vector<double>> logprobs_;
  std::vector<std::vector<Json>> tops_;
  std::vector<int32_t> order_;
};

}  // namespace

Result<Scores> Score(Engine& engine, const std::vector<Prompt>& prompts,
                     const ScoreOptions& options) {
  Scorer scorer(prompts, options, engine.info().dtype);
  if (!options.logits_path.empty())
    PINION_TRY(scorer.OpenLogits(options.logits_path,
                                 static_cast<size_t>(engine.model().spec.vocabulary)));
  if (!options.compare_path.empty())
    PINION_TRY(scorer.OpenReference(options.compare_path,
                                    static_cast<size_t>(engine.model().spec.vocabulary)));
  engine.SetScoreSink(
      [&](uint64_t request, size_t position, const float* logits, size_t vocabulary) {
        scorer.Take(request, position, logits, vocabulary);
      });
  std::vector<Status> errors(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    errors[i] = prompts[i].error ? engine.Add({i, prompts[i].ids, {}, true}) : prompts[i].error;
  std::vector<TokenEvent> events;
  while (!engine.idle() && scorer.failure()) {
    events.clear();
    engine.Step(events);
  }
  engine.SetScoreSink({});
  PINION_TRY(scorer.failure());
  PINION_TRY(scorer.FinishLogits());
  Scores scores;
  if (scorer.comparison()) scores.whole = scorer.comparison()->Summary();
  std::vector<Json>& lines = scores.lines;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (errors[i]) {
      lines.push_back(scorer.Line(i));
      continue;
    }
    lines.push_back(Json::MakeObject());
    lines.back().Set("error", errors[i].error().message);
  }
  return scores;
}

}  // namespace pinion
