#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// One prompt of a batch: token ids ready for the engine, and the line it came from (for its other
// keys). If the line cannot be used, `error` is set instead of ids and the rest of the batch
// continues.
struct Prompt {
  std::vector<int32_t> ids;
  Json line;
  Status error;
};

// Lines of a JSONL file ('-': standard input), blank ones skipped. A line that is not a JSON object
// is an error of the whole file that names the line.
Result<std::vector<Json>> ReadJsonLines(const std::string& path);
// The same lines with their numbers in the file, from 1.
struct JsonLine {
  size_t number = 0;
  Json value;
};
Result<std::vector<JsonLine>> ReadNumberedLines(const std::string& path);
// The same for any input: a FILE.txt becomes a single line, {"text": its whole content}.
Result<std::vector<Json>> ReadPromptFile(const std::string& path);
// Writes '-' to standard output.
Status WriteJsonLines(const std::string& path, const std::vector<Json>& lines);

// A JSONL file that grows line by line, so that finished results survive a later failure.
// '-': standard output.
class JsonLinesFile {
 public:
  static Result<JsonLinesFile> Create(const std::string& path);
  Status Append(const Json& line);  // complete and handed to the system when it returns

 private:
  struct Closer {
    void operator()(std::FILE* file) const {
      if (file != stdout) std::fclose(file);
    }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

// {"text"}, {"input_ids"} or {"messages"} (with "tools", "kwargs") -> ids, in input order. Chat
// templates are rendered in a helper process, so call this before Engine::Start.
// `tokenizer` may be null if every line has ids.
Result<std::vector<Prompt>> EncodePrompts(std::vector<Json> lines, const Tokenizer* tokenizer);

// Cuts one long text into prompts of `window` + 1 tokens, one every `window` tokens, so that each
// token but the first is predicted once. A shorter rest is dropped, unless it is the whole text.
std::vector<Prompt> CutWindows(const std::vector<int32_t>& ids, size_t window);

}  // namespace pinion
