#pragma once

#include "kernels/kernels.h"

namespace pinion::kernels::impl {

// One per isa_<name>.cc. TableFor composes the others: AVX-512 with BF16 is AVX-512's table with
// two functions of its own, and so is AMX's.
extern const Table kScalarTable;
extern const Table kAvx2Table;
extern const Table kAvx512Table;
void Avx512Bf16Gemm(const GemmArgs& args);
void Avx512Bf16Attention(const AttentionArgs& args);
void AmxGemmBf16(const GemmArgs& args);
ProductCut AmxCutBf16(size_t rows, size_t k_padded);
size_t AmxStrideBf16(size_t rows, size_t k_padded);
void AmxAttention(const AttentionArgs& args);

// Attention over a cache of bytes, in isa_<name>_bytes.cc.
void Avx2AttentionOfBytes(const AttentionArgs& args);
void Avx512AttentionOfBytes(const AttentionArgs& args);
void Avx512Bf16AttentionOfBytes(const AttentionArgs& args);

}  // namespace pinion::kernels::impl
