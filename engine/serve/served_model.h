#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/task.h"
#include "engine/serve/output_format.h"
#include "engine/serve/schema.h"

namespace pinion {

struct ModelFiles;
struct ServeOptions;

// The facts about the model that the front end has before the engine is ready.
struct ServedModel {
  std::string name;  // what clients call it, and answers and metrics
  std::string root;  // what it was loaded from
  size_t vocabulary = 0;
  ApiDefaults defaults;
  OutputFormat output = {};
  std::vector<std::string> aliases = {};  // further names that clients may use
  PoolingFacts pooling = {};              // whose task is the one that it is served for
  Json::Object template_kwargs = {};      // of templates, unless a request says otherwise
  std::vector<int32_t> eos_ids = {};      // that end its answers

  bool IsCalled(std::string_view asked) const;
};

// The model by `files`, which are made fit for its task, and `options`, but for the format of its
// output, which its chat template says.
Result<ServedModel> ServedModelOf(ModelFiles& files, const ServeOptions& options);

// 404 for a model that this server does not have.
ApiError UnknownModel(const std::string& asked, const ServedModel& served);

}  // namespace pinion
