#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "harness/profile/profile.h"

namespace pinion::harness {

// Of a DNS label (RFC 1123), which names of Services and values of labels must be.
inline constexpr size_t kMostOfLabel = 63;

// `text` as part of a DNS label: its ASCII letters in lower case and its digits, with one '-' for
// all between them, at most `most` characters. Empty if it has none of them.
std::string Slug(std::string_view text, size_t most = kMostOfLabel);

// The name of a profile's objects, "pinion-llama-3-2-1b-throughput-3f9c21": a DNS label of at most
// `most` (>= 40) characters that begins with a letter. The last part of the model and the objective
// make it readable, six digits of a hash of both make it unique: profiles of two models, or with
// two objectives, can be in one namespace. A later profile for the same replaces the earlier one.
std::string ObjectName(const Profile& profile, size_t most = kMostOfLabel);

// The labels that Kubernetes recommends, as a flow mapping of YAML: those by which a profile's pods
// are selected, and all of them.
std::string SelectorLabels(const std::string& object_name);
std::string ObjectLabels(const std::string& object_name);

}  // namespace pinion::harness
