#pragma once

#include <memory>
#include <string_view>

#include "engine/serve/prepare.h"

namespace pinion::fuzz {

constexpr size_t kModelTokens = 512, kKvTokens = 400;

// The front end of a small server: a tokenizer of bytes and a few words, limits that a small body
// reaches.
const Preparer& FrontEnd();

// A request with this body and no others beside it; `memory` is what all of them may use.
HttpRequest RequestOf(std::string_view body, const std::shared_ptr<MemoryBudget>& memory);

// Checks what is promised for every request: a refusal is one of the documented ones, with a
// sentence; what is accepted keeps the limits.
void CheckPrepared(const ApiResult<Prepared>& prepared);
void CheckRefusal(const ApiError& error);

}  // namespace pinion::fuzz
