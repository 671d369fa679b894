#include "harness/load/lengths.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

tl::unexpected<Error> BadLengths(std::string_view text, std::string_view what) {
  return Fail(ErrorCode::kUsage,
              StrCat(what, " '", text, "' is not a length: give tokens as 256, lognormal:256,0.5 ",
                     "(median, sigma of the logarithm) or uniform:64,512, from 1 to ", kMaxLength));
}

bool InRange(double tokens) { return tokens >= 1 && tokens <= kMaxLength; }

}  // namespace

int Lengths::Draw(std::mt19937_64& random) const {
  double tokens = a;
  if (kind == Kind::kLogNormal)
    tokens = a * std::exp(std::normal_distribution<double>(0, b)(random));
  if (kind == Kind::kUniform) tokens = std::uniform_real_distribution<double>(a, b + 1)(random);
  return static_cast<int>(std::clamp(std::floor(tokens + (kind == Kind::kUniform ? 0 : 0.5)), 1.0,
                                     static_cast<double>(kMaxLength)));
}

double Lengths::Median() const { return kind == Kind::kUniform ? (a + b) / 2 : a; }

double Lengths::High() const {
  if (kind == Kind::kFixed) return a;
  return kind == Kind::kUniform ? b : a * std::exp(2.06 * b);
}

std::string Lengths::Text() const {
  if (kind == Kind::kFixed) return StrCat(a);
  return StrCat(kind == Kind::kUniform ? "uniform:" : "lognormal:", a, ",", b);
}

Result<Lengths> ParseLengths(std::string_view text, std::string_view what) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    const auto tokens = ParseInt(text, what);
    if (!tokens || !InRange(static_cast<double>(*tokens))) return BadLengths(text, what);
    return Lengths::Fixed(static_cast<int>(*tokens));
  }
  const std::string_view kind = text.substr(0, colon);
  const std::vector<std::string> numbers = Split(text.substr(colon + 1), ',');
  if (numbers.size() != 2) return BadLengths(text, what);
  const auto a = ParseDouble(numbers[0], what), b = ParseDouble(numbers[1], what);
  if (!a || !b || !InRange(*a)) return BadLengths(text, what);
  if (kind == "lognormal" && *b >= 0 && *b <= 4) return Lengths{Lengths::Kind::kLogNormal, *a, *b};
  if (kind == "uniform" && *b >= *a && InRange(*b)) return Lengths{Lengths::Kind::kUniform, *a, *b};
  return BadLengths(text, what);
}

}  // namespace pinion::harness
