#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

namespace pinion {

std::vector<int32_t> ReadIds(const Json& list);

// The text of a file that may be there plain or, with ".gz" after its name, packed; "" if neither
// is.
std::string ReadPlainOrPacked(const std::string& path);
// Its lines, parsed.
std::vector<Json> ReadJsonLines(const std::string& path);

// The folder of the reference data: PINION_FIXTURES, or ../shared/fixtures beside the source.
std::string FixturesFolder();

// A tokenizer from `folder`/tokenizer.json, packed or not, alone.
Result<std::unique_ptr<Tokenizer>> LoadPacked(const std::string& folder);

// The following check a tokenizer against one file of reference cases and count what differs.
struct Tally {
  size_t cases = 0;
  std::vector<std::string> differences;  // one line each
};
// `adversarial`: the categories random, odd and join, or all the others.
Tally CheckEncoding(const Tokenizer& tokenizer, const std::string& folder, bool adversarial);
Tally CheckDecoding(const Tokenizer& tokenizer, const std::string& folder);
Tally CheckStreams(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace pinion
