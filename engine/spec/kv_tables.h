#pragma once

#include <cstddef>
#include <vector>

#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"

namespace pinion {

// A sequence has a block table for each kind of reach, so that layers that see a window need not
// keep tokens behind it. Layers of one table see equally far, and all tables take blocks of one
// size from one pool: a block holds some tokens' keys and values of as many layers as the kind that
// takes least has, and the other kinds have several tables. (For Gemma 3, of whose 34 layers 5 see
// everything, that is one table for these and six for the others.)
constexpr size_t kMostKvTables = 16;

// Gives every layer its table (LayerSpec::kv_table). A model is left with one table if its layers
// all see equally far, or if tokens choose what they see or see those behind them.
void AssignKvTables(DecoderSpec& spec);

// Of a sequence, in a stage as in the whole model.
size_t KvTables(const DecoderSpec& spec);
// How far the tokens of each table see, of the whole model: no limits if the table's layers differ,
// or if nothing is ever behind its window.
std::vector<Reach> KvReaches(const DecoderSpec& spec);

// The bytes of a token in the cache, over all layers and KV heads; of an encoder, in each stage.
uint64_t KvBytesPerToken(const DecoderSpec& spec, kernels::KvDtype dtype);
// The bytes of a sequence of so many tokens when the next one is computed: layers whose reach is
// limited keep no more tokens than that. Whole blocks may be some tokens more.
uint64_t KvBytesOfSequence(const DecoderSpec& spec, kernels::KvDtype dtype, uint64_t tokens);

// The place of a layer's keys and values, or of kv_from's if it has none of its own.
struct KvPlace {
  size_t table = 0, layer = 0;  // the latter of the cache
};
KvPlace KvPlaceOf(const DecoderSpec& spec, size_t layer);
// Whether one place serves all layers in turn: an encoder computes a text in one step, so that
// nothing reads a layer's keys and values after that layer. They then stay in the CPU's caches.
bool KeepsOneLayer(const DecoderSpec& spec);
// Whether a layer adds to a token's bytes in the cache.
bool AddsToCache(const DecoderSpec& spec, size_t layer);
// Whether layers of different tables are one layer of the cache, as their entries are of one size.
// Otherwise each has its own, which overlap in the bytes of a block: it is of one table at a time.
bool ShareCacheLayers(const DecoderSpec& spec);
// Of the cache, in a stage for its own layers.
size_t KvLayers(const DecoderSpec& spec);

}  // namespace pinion
