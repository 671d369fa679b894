#include "tests/engine/text/text_cases.h"

#include <zlib.h>

#include <cstdlib>

#include "engine/base/strings.h"
#include "engine/text/utf8.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

// Whether `stream` keeps the rules at each of its steps: its text is a prefix of what is right,
// consists of whole characters, and is neither ahead of `earliest` nor behind `latest`.
std::string StreamFault(const std::vector<std::string>& stream, const std::string& before,
                        const std::string& final, const Json& earliest, const Json& latest) {
  std::string got, first, last;
  for (size_t i = 0; i < stream.size(); ++i) {
    got += stream[i];
    first += earliest.array()[i].string();
    last += latest.array()[i].string();
    const std::string whole = before + got;
    if (final.compare(0, whole.size(), whole) != 0) return StrCat("no prefix at ", i);
    if (!IsValidUtf8(got)) return StrCat("a cut character at ", i);
    if (got.size() > first.size()) return StrCat("ahead at ", i);
    // The reference's lazy decoder counts a prompt that ends inside a character as output.
    if (whole.size() < last.size() || (last.rfind(before, 0) != 0 && got.size() < last.size()))
      return StrCat("behind at ", i);
  }
  return "";
}

// The reference's own lazy stream; if it has none or gave up, the eager one is the bound.
const Json& LatestStream(const Json& c) {
  const Json* lazy = c.Find("hf_decodestream");
  if (!lazy || !lazy->is_array()) return *c.Find("emit");
  for (const Json& part : lazy->array())
    if (!part.is_string() || part.string().rfind("ERR", 0) == 0) return *c.Find("emit");
  return *lazy;
}

void Compare(Tally& tally, const std::string& what, const std::string& got,
             const std::string& want) {
  if (got != want)
    tally.differences.push_back(
        StrCat(what, ": got ", Json(got).Dump(), ", want ", Json(want).Dump()));
}

}  // namespace

std::vector<int32_t> ReadIds(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.array()) ids.push_back(static_cast<int32_t>(id.integer()));
  return ids;
}

std::string ReadPlainOrPacked(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // also reads plain files
  if (!file) file = gzopen((path + ".gz").c_str(), "rb");
  if (!file) return "";
  std::string text;
  char buffer[1 << 16];
  for (int got; (got = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  gzclose(file);
  return text;
}

std::vector<Json> ReadJsonLines(const std::string& path) {
  std::vector<Json> lines;
  for (const std::string& line : Split(ReadPlainOrPacked(path), '\n')) {
    if (line.empty()) continue;
    auto parsed = Json::Parse(line);
    lines.push_back(parsed ? std::move(*parsed) : Json(parsed.error().message));
  }
  return lines;
}

std::string FixturesFolder() {
  const char* named = std::getenv("PINION_FIXTURES");
  return named && *named ? named : (tests::SourceFolder() / "../shared/fixtures").string();
}

Result<std::unique_ptr<Tokenizer>> LoadPacked(const std::string& folder) {
  auto json = Json::Parse(ReadPlainOrPacked(folder + "/tokenizer.json"));
  if (!json) return Unexpected(std::move(json).error());
  return MakeTokenizer(*json, Json());
}

Tally CheckEncoding(const Tokenizer& tokenizer, const std::string& folder, bool adversarial) {
  Tally tally;
  for (const Json& c : ReadJsonLines(folder + "/encode.jsonl")) {
    const std::string& category = c.Find("cat")->string();
    if ((category == "random" || category == "odd" || category == "join") != adversarial) continue;
    ++tally.cases;
    const std::string& text = c.Find("text")->string();
    const std::vector<int32_t> ids = ReadIds(*c.Find("ids"));
    const std::vector<int32_t> plain = ReadIds(*c.Find("ids_no_special"));
    Tally one;
    if (tokenizer.Encode(text, true) != ids || tokenizer.Encode(text, false) != plain)
      one.differences.push_back("other ids");
    Compare(one, "decoded", tokenizer.Decode(plain, false), c.Find("decoded")->string());
    Compare(one, "skipped", tokenizer.Decode(ids, true), c.Find("decoded_skip")->string());
    if (!one.differences.empty())
      tally.differences.push_back(StrCat(category, " ", c.Find("n")->integer(), " ",
                                         Json(text).Dump(), ": ", Join(one.differences, ", ")));
  }
  return tally;
}

Tally CheckDecoding(const Tokenizer& tokenizer, const std::string& folder) {
  Tally tally;
  for (const Json& c : ReadJsonLines(folder + "/decode.jsonl")) {
    ++tally.cases;
    const std::vector<int32_t> ids = ReadIds(*c.Find("ids"));
    Compare(tally, "decoded", tokenizer.Decode(ids, false), c.Find("decoded")->string());
    Compare(tally, "skipped", tokenizer.Decode(ids, true), c.Find("decoded_skip")->string());
  }
  return tally;
}

Tally CheckStreams(const Tokenizer& tokenizer, const std::string& folder) {
  Tally tally;
  for (const Json& c : ReadJsonLines(folder + "/stream.jsonl")) {
    // A run of byte tokens that turns invalid after a complete character: a stream that has passed
    // the character on cannot end at the reference's text, so there is nothing to compare with.
    if (!c.Find("emit")) continue;
    ++tally.cases;
    const std::vector<int32_t> prompt = ReadIds(*c.Find("prompt_ids"));
    const std::string& final = c.Find("final")->string();
    const std::string before = c.Find("prompt_text") ? c.Find("prompt_text")->string() : "";
    StreamDecoder decoder(tokenizer, prompt);
    // Goes on as a copy at each token, while the decoder that was copied takes another one.
    auto copied = std::make_unique<StreamDecoder>(tokenizer, prompt);
    std::vector<std::string> stream, of_copies;
    for (int32_t id : ReadIds(*c.Find("ids"))) {
      stream.push_back(decoder.Push(id));
      auto next = std::make_unique<StreamDecoder>(*copied);
      copied->Push(id / 2 + 1);
      copied = std::move(next);
      of_copies.push_back(copied->Push(id));
    }
    std::string fault = StreamFault(stream, before, final, *c.Find("emit"), LatestStream(c));
    if (before + Join(stream, "") + decoder.Flush() != final) fault += " another end";
    if (of_copies != stream) fault += " copies differ";
    if (!fault.empty()) tally.differences.push_back(StrCat(fault, " in ", c.Dump()));
  }
  return tally;
}

}  // namespace pinion
