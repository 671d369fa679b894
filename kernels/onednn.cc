// The adapter of oneDNN: nothing else includes its headers. Its primitives read the packed weights
// where they are; what it needs differently is copied into scratch that belongs to the thread:
//   - rows are padded to a bucket, so that a batch that grows by one makes no new primitive
//   - a destination with a row stride is slow (it leaves the fast implementation), so results go to
//     a dense one first

#include "kernels/impl/onednn.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <tuple>

namespace pinion::kernels {
namespace {

dnnl::cpu_isa Cap(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return dnnl::cpu_isa::sse41;  // its lowest; Gemm() never gets there
    case Isa::kAvx2:
      return dnnl::cpu_isa::avx2;
    case Isa::kAvx512:
      return dnnl::cpu_isa::avx512_core;
    case Isa::kAvx512Bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case Isa::kAmx:
      return dnnl::cpu_isa::avx512_core_amx;
  }
  __builtin_unreachable();
}

// Primitives are made for these numbers of rows only: at most a third of the rows is padding, and a
// shape has about 40 primitives.
constexpr size_t kMostRows = 2048;  // longer activations are cut
size_t Bucket(size_t rows) {
  if (rows <= 16) {
    size_t power = 1;
    while (power < rows) power *= 2;
    return power;
  }
  return RoundUp(rows, rows <= 128 ? 16 : rows <= 512 ? 32 : 128);
}

class AlignedBuffer {
 public:
  // At least `bytes`, zero when fresh; the contents stay from call to call unless it grows.
  std::byte* Get(size_t bytes) {
    if (bytes > size_) {
      const size_t size = RoundUp(bytes, 4096);
      auto* fresh = static_cast<std::byte*>(std::aligned_alloc(4096, size));
      if (fresh == nullptr) throw std::bad_alloc();
      std::memset(fresh, 0, size);
      data_.reset(fresh);
      size_ = size;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// oneDNN fixes the number of threads when it makes a primitive.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

struct Primitive {
  dnnl::matmul matmul;  // empty where oneDNN has nothing fast
  dnnl::memory src, weights, dst, scratch;
};

// What one thread keeps: primitives by (bucket, k, blocks, type), and scratch.
class ThreadCache {
 public:
  // Null where oneDNN has nothing fast.
  Primitive* Find(Dtype type, size_t bucket, size_t k_padded, size_t blocks) {
    const auto key = std::make_tuple(bucket, k_padded, blocks, type);
    auto found = primitives_.find(key);
    if (found == primitives_.end()) {
      found = primitives_.emplace(key, Make(type, bucket, k_padded, blocks)).first;
    }
    return found->second.matmul ? &found->second : nullptr;
  }

  dnnl::stream& stream() { return stream_; }
  AlignedBuffer x, y;

 private:
  // "BA16a64b2a" is kernels.h's layout with a = k and b = n. Only the brgemm implementation reads
  // it in place; the others would be plain loops or repack at every call.
  Primitive Make(Dtype type, size_t bucket, size_t k_padded, size_t blocks) {
    using Memory = dnnl::memory;
    const bool is_bf16 = type == Dtype::kBf16;
    const auto element = is_bf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
    const auto layout = is_bf16 ? Memory::format_tag::BA16a64b2a : Memory::format_tag::BA16a64b;
    const auto m = static_cast<Memory::dim>(bucket), k = static_cast<Memory::dim>(k_padded);
    const auto n = static_cast<Memory::dim>(blocks * kBlockN);
    const Memory::desc src({m, k}, element, Memory::format_tag::ab);
    const Memory::desc weights({k, n}, element, layout);
    const Memory::desc dst({m, n}, Memory::data_type::f32, Memory::format_tag::ab);

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const OneThread one_thread;
    const dnnl::matmul::primitive_desc description({src, weights, dst}, attributes, engine_, true);
    if (!description) return {};
    if (std::string_view(description.impl_info_str()).substr(0, 3) != "brg") return {};
    return {dnnl::matmul(description), Memory(src, engine_, nullptr),
            Memory(weights, engine_, nullptr), Memory(dst, engine_, nullptr),
            Memory(description.scratchpad_desc(), engine_)};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<std::tuple<size_t, size_t, size_t, Dtype>, Primitive> primitives_;
};

// At most kMostRows rows. Throws dnnl::error and std::bad_alloc.
bool Run(ThreadCache& cache, Dtype type, const GemmArgs& args) {
  const size_t bucket = Bucket(args.rows), n = args.blocks * kBlockN;
  Primitive* primitive = cache.Find(type, bucket, args.k_padded, args.blocks);
  if (primitive == nullptr) return false;

  const size_t x_row_bytes = args.k_padded * SizeOf(ActivationType(type));
  void* x = const_cast<void*>(args.x);  // oneDNN's handles are not const; it only reads
  if (bucket != args.rows) {
    x = cache.x.Get(bucket * x_row_bytes);
    std::memcpy(x, args.x, args.rows * x_row_bytes);  // the padding rows hold whatever was there
  }
  const bool is_dense = args.ldy == n && bucket == args.rows;
  float* y = is_dense ? args.y : reinterpret_cast<float*>(cache.y.Get(bucket * n * sizeof(float)));

  primitive->src.set_data_handle(x);
  primitive->weights.set_data_handle(const_cast<std::byte*>(args.w));
  primitive->dst.set_data_handle(y);
  primitive->matmul.execute(cache.stream(), {{DNNL_ARG_SRC, primitive->src},
                                             {DNNL_ARG_WEIGHTS, primitive->weights},
                                             {DNNL_ARG_DST, primitive->dst},
                                             {DNNL_ARG_SCRATCHPAD, primitive->scratch}});
  for (size_t row = 0; row < args.rows && !is_dense; ++row) {
    std::memcpy(args.y + row * args.ldy, y + row * n, n * sizeof(float));
  }
  return true;
}

void RunOwn(const Table& table, Dtype weights, const GemmArgs& args) {
  switch (weights) {
    case Dtype::kF32:
      return table.gemm_f32(args);
    case Dtype::kBf16:
      return table.gemm_bf16(args);
    case Dtype::kF16:
      return table.gemm_f16(args);
  }
}

}  // namespace

namespace impl {

bool OneDnnGemm(Dtype weights, const GemmArgs& args) try {
  if (weights == Dtype::kF16 || args.rows == 0) return false;
  thread_local ThreadCache cache;
  GemmArgs part = args;
  for (size_t row = 0; row < args.rows; row += part.rows) {
    part.rows = std::min(args.rows - row, kMostRows);
    part.x = static_cast<const std::byte*>(args.x) +
             row * args.k_padded * SizeOf(ActivationType(weights));
    part.y = args.y + row * args.ldy;
    if (!Run(cache, weights, part)) return false;
  }
  return true;
} catch (const std::exception&) {
  return false;  // dnnl::error, std::bad_alloc: our own kernel needs neither
}

}  // namespace impl

bool LimitOneDnn(Isa isa) {
  static const Isa limit = isa;  // the first call wins, whichever thread makes it
  static const bool done = dnnl::set_max_cpu_isa(Cap(isa)) == dnnl::status::success;
  return done && limit == isa;
}

// With AMX, bfloat16 from one row on: the tiles are oneDNN's alone. Elsewhere our kernels were
// never slower by more than the noise: on Zen 5 (`pinion-bench --benchmark_filter=gemm/`, 2048 x
// 2048, one thread) oneDNN takes 1.1 to 1.4 times as long for 4 to 64 rows and the same from 128
// on, before its copy of a strided destination.
size_t OneDnnRows(Isa isa, Dtype weights) {
  return isa == Isa::kAmx && weights == Dtype::kBf16 ? 1 : SIZE_MAX;
}

void Gemm(const Table& table, Dtype weights, const GemmArgs& args) {
  if (args.rows >= OneDnnRows(table.isa, weights) && impl::OneDnnGemm(weights, args)) return;
  RunOwn(table, weights, args);
}

}  // namespace pinion::kernels
