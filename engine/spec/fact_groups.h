#pragma once

#include "engine/spec/spec_facts.h"

namespace pinion {

// Parts of SpecFacts: how tokens are mixed, and the cache; dense MLPs and experts.
void AddMixerFacts(const DecoderSpec& spec, Facts& facts);
void AddMlpFacts(const DecoderSpec& spec, Facts& facts);

}  // namespace pinion
