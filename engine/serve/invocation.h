#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/run/task.h"
#include "engine/serve/schema.h"

namespace pinion {

// The APIs whose bodies /invocations, the one endpoint that SageMaker asks, answers for a model, in
// the order in which it takes a body for one.
std::span<const Api> InvokedApis(const PoolingFacts& facts);

// The API of a body, by the fields that it has; unset if the model answers none with these. Reads
// the text without parsing it: a body that is not JSON may pass.
std::optional<Api> InvokedApi(std::string_view body, const PoolingFacts& facts);

// The fields that InvokedApi looks for, for an error.
const char* InvokedFields(const PoolingFacts& facts);

}  // namespace pinion
