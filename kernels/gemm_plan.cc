#include "kernels/gemm_plan.h"

#include <charconv>

#include "kernels/impl/onednn.h"
#include "kernels/impl/tables.h"
#include "kernels/kernels.h"

namespace pinion::kernels {
namespace {

constexpr std::string_view kOneDnn = "onednn";
constexpr const char* kSuffixes[] = {"", "-far", "-none", "-both"};  // by Prefetch

// Kernels that widen weights to float32 pack the activations of a call of several blocks
// (impl/gemm_panels.inl.h): with eight, packing takes 2 or 3 % of the call's time. Fewer rows are
// multiplied by several blocks per call anyway.
constexpr size_t kRowsWorthPacking = 64;
constexpr ProductCut kPackedCut = {.rows = 128, .blocks = 8};
// Products of pairs: so many rows' sums of a block stay in L2 from chunk to chunk, and with smaller
// pieces of a long step few threads finish at about the same time.
constexpr ProductCut kPairsCut = {.rows = 256};

// The rules in force. At first every path uses its own table for everything.
struct Active {
  GemmRules rules[kIsaCount][kDtypeCount];

  Active() {
    for (int isa = 0; isa < kIsaCount; ++isa) {
      for (int type = 0; type < kDtypeCount; ++type) {
        const auto own = GemmCandidates(static_cast<Isa>(isa), static_cast<Dtype>(type)).front();
        rules[isa][type] = {{1, own}};
      }
    }
  }
  static GemmRules& Of(Isa isa, Dtype weights) {
    static Active active;
    return active.rules[static_cast<int>(isa)][static_cast<int>(weights)];
  }
};

void RunTable(const Table& table, Dtype weights, const GemmArgs& args) {
  switch (weights) {
    case Dtype::kF32:
      return table.gemm_f32(args);
    case Dtype::kBf16:
      return table.gemm_bf16(args);
    case Dtype::kF16:
      return table.gemm_f16(args);
  }
}

const GemmRule& RuleFor(const GemmRules& rules, size_t rows) {
  size_t last = 0;
  while (last + 1 < rules.size() && rules[last + 1].from_rows <= rows) ++last;
  return rules[last];
}

std::vector<GemmKernel> WithEachPrefetch(Isa isa) {
  std::vector<GemmKernel> kernels;
  for (const Prefetch prefetch : kPrefetches) kernels.push_back({.isa = isa, .prefetch = prefetch});
  return kernels;
}

std::optional<GemmRule> ParseRule(std::string_view text, const std::vector<GemmKernel>& known) {
  GemmRule rule;
  const size_t at = text.find('@');
  if (at != std::string_view::npos) {
    const char *begin = text.data() + at + 1, *end = text.data() + text.size();
    const auto parsed = std::from_chars(begin, end, rule.from_rows);
    if (parsed.ec != std::errc() || parsed.ptr != end || rule.from_rows == 0) return std::nullopt;
  }
  for (const GemmKernel& kernel : known) {
    if (text.substr(0, at) != Name(kernel)) continue;
    rule.kernel = kernel;
    return rule;
  }
  return std::nullopt;
}

}  // namespace

std::string Name(const GemmKernel& kernel) {
  if (kernel.is_onednn) return std::string(kOneDnn);
  return std::string(Name(kernel.isa)).append(kSuffixes[static_cast<int>(kernel.prefetch)]);
}

// Tables that hold the same code are listed once: from avx512 on all share the kernels for float32
// and float16, and only bfloat16, which weaker paths widen to float32, has its own from avx512_bf16
// on.
std::vector<GemmKernel> GemmCandidates(Isa isa, Dtype weights) {
  const Isa own = FloatPath(isa);
  if (own == Isa::kScalar) return {{own}};
  if (own == Isa::kAvx2) return WithEachPrefetch(own);
  std::vector<GemmKernel> kernels;
  if (isa == Isa::kAmx && weights == Dtype::kBf16) kernels.push_back({isa});
  for (Isa vectors : {Isa::kAvx512Bf16, Isa::kAvx512}) {
    if (vectors > isa || (vectors == Isa::kAvx512Bf16 && weights != Dtype::kBf16)) continue;
    for (const GemmKernel& kernel : WithEachPrefetch(vectors)) kernels.push_back(kernel);
  }
  if (impl::HasOneDnn(isa, weights)) kernels.push_back({.isa = isa, .is_onednn = true});
  return kernels;
}

std::string Format(const GemmRules& rules) {
  std::string text;
  for (const GemmRule& rule : rules) {
    if (!text.empty()) text += ",";
    text += Name(rule.kernel);
    if (rule.from_rows > 1) text.append("@").append(std::to_string(rule.from_rows));
  }
  return text;
}

std::optional<GemmRules> ParseGemmRules(std::string_view text, Isa isa, Dtype weights) {
  const std::vector<GemmKernel> known = GemmCandidates(isa, weights);
  GemmRules rules;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const auto rule = ParseRule(text.substr(0, comma), known);
    if (!rule || rule->from_rows <= (rules.empty() ? 0 : rules.back().from_rows)) return {};
    rules.push_back(*rule);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  if (rules.front().from_rows != 1) return std::nullopt;
  return rules;
}

void UseGemmRules(Isa isa, Dtype weights, const GemmRules& rules) {
  Active::Of(isa, weights) = rules;
}

const GemmRules& ActiveGemmRules(Isa isa, Dtype weights) { return Active::Of(isa, weights); }

void RunGemmKernel(const GemmKernel& kernel, Dtype weights, GemmArgs args) {
  args.prefetch = kernel.prefetch;
  if (kernel.is_onednn && impl::OneDnnGemm(weights, args)) return;
  RunTable(TableFor(kernel.isa), weights, args);
}

void Gemm(const Table& table, Dtype weights, const GemmArgs& args) {
  const GemmRule& rule = RuleFor(ActiveGemmRules(table.isa, weights), args.rows);
  RunGemmKernel(rule.kernel, weights, args);
}

ProductCut GemmCut(const Table& table, Dtype weights, size_t rows, size_t k_padded) {
  const GemmKernel& kernel = RuleFor(ActiveGemmRules(table.isa, weights), rows).kernel;
  if (kernel.is_onednn || kernel.isa == Isa::kScalar) return {};
  if (weights == Dtype::kBf16 && kernel.isa >= Isa::kAvx512Bf16)
    return kernel.isa == Isa::kAmx ? impl::AmxCutBf16(rows, k_padded) : kPairsCut;
  return rows >= kRowsWorthPacking ? kPackedCut : ProductCut{};
}

size_t KernelStride(const Table& table, const GemmKernel& kernel, Dtype weights, size_t rows,
                    size_t k_padded) {
  const bool is_own = kernel.isa == FloatPath(table.isa) && !kernel.is_onednn;
  if (weights != Dtype::kBf16 || !is_own || !table.stride_bf16) return k_padded;
  return table.stride_bf16(rows, k_padded);
}

size_t GemmStride(const Table& table, Dtype weights, size_t rows, size_t k_padded) {
  const GemmKernel& kernel = RuleFor(ActiveGemmRules(table.isa, weights), rows).kernel;
  return KernelStride(table, kernel, weights, rows, k_padded);
}

}  // namespace pinion::kernels
