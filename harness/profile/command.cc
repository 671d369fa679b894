#include "harness/profile/command.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// The shortest decimal that reads back as the same number.
std::string Shortest(double value) {
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

// "0-3|4-7", from {"ranks":[{"cpus":[...]}]}; empty if a rank is not pinned or the plan is unknown.
std::string BindingOf(const Json& plan) {
  const Json* ranks = plan.Find("ranks");
  if (!ranks || !ranks->is_array()) return "";
  std::vector<std::string> lists;
  for (const Json& rank : ranks->array()) {
    const Json* cpus = rank.Find("cpus");
    if (!cpus || !cpus->is_array() || cpus->array().empty()) return "";
    std::vector<int> ids;
    for (const Json& cpu : cpus->array())
      if (cpu.is_int()) ids.push_back(static_cast<int>(cpu.integer()));
    lists.push_back(FormatCpuList(ids));
  }
  return Join(lists, "|");
}

std::vector<std::pair<std::string, std::string>> VllmEnvironment(const EngineOptions& options,
                                                                 const Json& plan) {
  // vLLM takes whole GiB and, if unset, most of the memory; 4 was its earlier default.
  constexpr double kVllmDefaultGib = 4;
  const double gib = options.kv_cache_bytes ? static_cast<double>(*options.kv_cache_bytes) / kGib
                                            : kVllmDefaultGib;
  std::vector<std::pair<std::string, std::string>> environment = {
      {"VLLM_CPU_KVCACHE_SPACE", StrCat(static_cast<int64_t>(std::max(1.0, std::ceil(gib))))}};
  const std::string binding = BindingOf(plan);
  environment.emplace_back("VLLM_CPU_OMP_THREADS_BIND",
                           binding.empty() ? options.threads_bind : binding);
  if (options.reserved_cpus) {
    // Pinion's setting counts cores in total, vLLM's per rank.
    const int ranks = std::max(1, options.tensor_parallel);
    environment.emplace_back("VLLM_CPU_NUM_OF_RESERVED_CPU",
                             StrCat((*options.reserved_cpus + ranks - 1) / ranks));
  }
  if (!options.moe_prepack) environment.emplace_back("VLLM_CPU_MOE_PREPACK", "0");
  return environment;
}

}  // namespace

std::string ShellQuote(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ShellText(const Command& command) {
  std::vector<std::string> words;
  for (const auto& [name, value] : command.environment)
    words.push_back(name + "=" + ShellQuote(value));
  for (const std::string& argument : command.arguments) words.push_back(ShellQuote(argument));
  return Join(words, " ");
}

Command OnCpus(Command command, const std::optional<std::vector<int>>& cpus) {
  if (cpus)
    command.arguments.insert(command.arguments.begin(), {"taskset", "-c", FormatCpuList(*cpus)});
  return command;
}

std::vector<std::string> EngineArguments(const EngineOptions& options) {
  const EngineOptions defaults;
  std::vector<std::string> arguments = {options.model};
  const auto add = [&](const char* flag, const std::string& value) {
    arguments.insert(arguments.end(), {flag, value});
  };
  const auto add_changed = [&](const char* flag, const auto& value, const auto& usual) {
    if (value != usual) add(flag, StrCat(value));
  };
  add_changed("--threads-bind", options.threads_bind, defaults.threads_bind);
  add_changed("--smt", options.smt, defaults.smt);
  if (options.reserved_cpus) add("--reserved-cpus", StrCat(*options.reserved_cpus));
  add_changed("--tensor-parallel-size", options.tensor_parallel, defaults.tensor_parallel);
  if (options.kv_cache_bytes)
    add("--kv-cache-space", Shortest(static_cast<double>(*options.kv_cache_bytes) / kGib));
  add_changed("--isa", options.isa, defaults.isa);
  add_changed("--gemm-kernel", options.gemm_kernel, defaults.gemm_kernel);
  add_changed("--dtype", options.dtype, defaults.dtype);
  add_changed("--activations", options.activations, defaults.activations);
  add_changed("--head-dtype", options.head_dtype, defaults.head_dtype);
  add_changed("--kv-cache-dtype", options.kv_cache_dtype, defaults.kv_cache_dtype);
  add_changed("--block-size", options.block_size, defaults.block_size);
  add_changed("--max-num-batched-tokens", options.max_num_batched_tokens,
              defaults.max_num_batched_tokens);
  add_changed("--max-num-seqs", options.max_num_seqs, defaults.max_num_seqs);
  if (options.max_model_len) add("--max-model-len", StrCat(*options.max_model_len));
  if (options.max_step_ms) add("--max-step-ms", StrCat(*options.max_step_ms));
  if (!options.prefix_caching) arguments.emplace_back("--no-enable-prefix-caching");
  if (!options.moe_prepack) add("--moe-prepack", "0");
  add_changed("--seed", options.seed, defaults.seed);
  return arguments;
}

Command ServeCommand(const EngineOptions& options, const std::string& host, int port) {
  Command command{{}, {SelfPath(), "serve"}};
  const auto engine = EngineArguments(options);
  command.arguments.insert(command.arguments.end(), engine.begin(), engine.end());
  command.arguments.insert(command.arguments.end(), {"--host", host, "--port", StrCat(port)});
  return command;
}

std::string VllmShellText(const EngineOptions& options, const Json& plan) {
  constexpr std::string_view kPreset = "preset:";
  std::string model = options.model, before;
  if (model.rfind(kPreset, 0) == 0) {
    const std::string name = model.substr(kPreset.size());
    model = "./" + name;
    before = ShellText({{}, {"pinion", "model", "make", "--preset", name, model}}) + "\n";
  }
  EngineOptions written = options;
  written.model = model;
  return before + ShellText(VllmCommand(written, plan));
}

Command VllmCommand(const EngineOptions& options, const Json& plan) {
  Command command{VllmEnvironment(options, plan), {"vllm", "serve", options.model}};
  auto& arguments = command.arguments;
  if (options.tensor_parallel > 1)
    arguments.insert(arguments.end(), {"-tp", StrCat(options.tensor_parallel)});
  arguments.insert(arguments.end(), {"--dtype", options.dtype, "--max-num-batched-tokens",
                                     StrCat(options.max_num_batched_tokens), "--max-num-seqs",
                                     StrCat(options.max_num_seqs)});
  if (options.max_model_len)
    arguments.insert(arguments.end(), {"--max-model-len", StrCat(*options.max_model_len)});
  if (!options.prefix_caching) arguments.emplace_back("--no-enable-prefix-caching");
  return command;
}

std::vector<std::string> WithoutVllmCounterpart(const EngineOptions& options) {
  const EngineOptions defaults;
  std::vector<std::string> settings;
  if (options.isa != defaults.isa) settings.push_back("isa=" + options.isa);
  if (options.gemm_kernel != defaults.gemm_kernel)
    settings.push_back("gemm_kernel=" + options.gemm_kernel);
  return settings;
}

}  // namespace pinion::harness
