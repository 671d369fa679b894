// The adapter of oneDNN: no other file includes its headers. Its primitives read the packed weights
// in place. Two things are copied through scratch that belongs to the thread:
//   - rows are cut into buckets, the last one padded, so that no batch size needs a new primitive
//   - results go to a dense destination first: with a row stride oneDNN leaves its fast
//     implementation

#include "kernels/impl/onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
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
      return dnnl::cpu_isa::sse41;  // oneDNN's lowest; the scalar path never calls it
    case Isa::kAvx2:
      return dnnl::cpu_isa::avx2;
    case Isa::kAvx2Vnni:
      return dnnl::cpu_isa::avx2_vnni;
    case Isa::kAvx512:
      return dnnl::cpu_isa::avx512_core;
    case Isa::kAvx512Vnni:
      return dnnl::cpu_isa::avx512_core_vnni;
    case Isa::kAvx512Bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case Isa::kAmx:
      return dnnl::cpu_isa::avx512_core_amx;
  }
  __builtin_unreachable();
}

// Primitives are made for these numbers of rows only, all at once. From kCutFromRows on, at which
// reading the weights once more costs less than multiplying padding, rows are cut into the largest
// bucket that fits; the rest is padded.
constexpr size_t kBuckets[] = {1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048};
constexpr size_t kBucketCount = std::size(kBuckets);
constexpr size_t kCutFromRows = 64;

size_t BucketIndex(size_t rows) {
  size_t index = 0;
  while (index + 1 < kBucketCount && kBuckets[index] < rows) ++index;
  if (kBuckets[index] > rows && rows >= kCutFromRows) --index;
  return index;
}

class AlignedBuffer {
 public:
  // At least `bytes`, zeroed when allocated; the contents last from call to call unless it grows.
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

// Makes primitives for one thread while it lives: oneDNN reads OpenMP's number of threads when it
// creates a primitive.
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
  dnnl::matmul matmul;  // empty if oneDNN has no fast implementation
  dnnl::memory src, weights, dst, scratch;
};

// One thread's primitives for every shape (k, blocks, type), and its scratch.
class ThreadCache {
 public:
  // Null if oneDNN has no fast implementation.
  Primitive* Find(Dtype type, size_t bucket_index, size_t k_padded, size_t blocks) {
    const auto key = std::make_tuple(k_padded, blocks, type);
    auto found = shapes_.find(key);
    if (found == shapes_.end()) {
      found = shapes_.try_emplace(key).first;
      for (size_t i = 0; i < kBucketCount; ++i)
        found->second[i] = Make(type, kBuckets[i], k_padded, blocks);
    }
    Primitive& primitive = found->second[bucket_index];
    return primitive.matmul ? &primitive : nullptr;
  }

  dnnl::stream& stream() { return stream_; }
  AlignedBuffer x, y;

 private:
  // "BA16a64b2a" is kernels.h's layout with a = k and b = n. Only the brgemm implementation reads
  // it in place; the others are plain loops or repack the weights in every call.
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
  std::map<std::tuple<size_t, size_t, Dtype>, std::array<Primitive, kBucketCount>> shapes_;
};

// At most `bucket` rows. Throws dnnl::error and std::bad_alloc.
bool Run(ThreadCache& cache, Dtype type, size_t bucket_index, const GemmArgs& args) {
  const size_t bucket = kBuckets[bucket_index], n = args.blocks * kBlockN;
  Primitive* primitive = cache.Find(type, bucket_index, args.k_padded, args.blocks);
  if (primitive == nullptr) return false;

  const size_t x_row_bytes = args.k_padded * SizeOf(ActivationType(type));
  void* x = const_cast<void*>(args.x);  // oneDNN's handles are not const; it only reads
  if (bucket != args.rows || args.row_stride() != args.k_padded) {
    x = cache.x.Get(bucket * x_row_bytes);
    // The padding rows keep old contents: their results are not copied.
    const size_t stride = args.row_stride() * SizeOf(ActivationType(type));
    for (size_t row = 0; row < args.rows; ++row)
      std::memcpy(static_cast<std::byte*>(x) + row * x_row_bytes,
                  static_cast<const std::byte*>(args.x) + row * stride, x_row_bytes);
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

}  // namespace

namespace impl {

bool HasOneDnn(Isa isa, Dtype weights) {
  return (weights == Dtype::kF32 && isa >= Isa::kAvx512) ||
         (weights == Dtype::kBf16 && isa >= Isa::kAvx512Bf16);
}

bool OneDnnGemm(Dtype weights, const GemmArgs& args) try {
  if (weights == Dtype::kF16 || args.rows == 0) return false;
  thread_local ThreadCache cache;
  GemmArgs part = args;
  for (size_t row = 0; row < args.rows; row += part.rows) {
    const size_t bucket_index = BucketIndex(args.rows - row);
    part.rows = std::min(args.rows - row, kBuckets[bucket_index]);
    part.x = static_cast<const std::byte*>(args.x) +
             row * args.row_stride() * SizeOf(ActivationType(weights));
    part.y = args.y + row * args.ldy;
    if (!Run(cache, weights, bucket_index, part)) return false;
  }
  return true;
} catch (const std::exception&) {
  return false;  // dnnl::error or std::bad_alloc: our own kernel, which throws neither, takes over
}

}  // namespace impl

bool LimitOneDnn(Isa isa) {
  static const Isa limit = isa;  // the first call wins, whichever thread makes it
  static const bool done = dnnl::set_max_cpu_isa(Cap(isa)) == dnnl::status::success;
  return done && limit == isa;
}

}  // namespace pinion::kernels
