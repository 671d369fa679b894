#include "harness/sweep/provenance.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/json_lists.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/host/topology_xml.h"
#include "harness/doctor/checks.h"
#include "harness/doctor/counters.h"
#include "harness/sweep/state.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kWhole = uint64_t{64} << 20, kPiece = uint64_t{1} << 20, kPieces = 64;

// FNV-1a over 8-byte words: for identification, not against forgery.
class Hash {
 public:
  void Add(const std::byte* data, size_t bytes) {
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
      uint64_t word = 0;
      std::copy_n(data + i, 8, reinterpret_cast<std::byte*>(&word));
      Mix(word);
    }
    for (; i < bytes; ++i) Mix(static_cast<uint64_t>(data[i]));
    Mix(bytes);
  }
  std::string Text() const {
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(state_));
    return hex;
  }

 private:
  void Mix(uint64_t word) {
    state_ = (state_ ^ word) * 0x100000001b3;
    state_ ^= state_ >> 29;  // or high bits would never reach low ones
  }
  uint64_t state_ = 0xcbf29ce484222325;
};

void AddFile(const MappedFile& file, Hash& hash) {
  const uint64_t bytes = file.size_bytes();
  if (bytes <= kWhole) return hash.Add(file.data(), bytes);
  for (uint64_t piece = 0; piece < kPieces; ++piece)
    hash.Add(file.data() + (bytes - kPiece) / (kPieces - 1) * piece, kPiece);
}

Json TextOrNull(const std::string& path) {
  const auto text = ReadFile(path, 1 << 20);
  return text ? Json(std::string(Trim(*text))) : Json();
}

Json KernelJson() {
  utsname system = {};
  Json kernel = Json::MakeObject();
  if (uname(&system) == 0) {
    kernel.Set("release", system.release);
    kernel.Set("version", system.version);
  }
  kernel.Set("command_line", TextOrNull("/proc/cmdline"));
  return kernel;
}

// "microcode : 0xa101148" of /proc/cpuinfo, of the first CPU.
Json MicrocodeJson() {
  const std::string key = "microcode";
  for (const std::string& line : Split(ReadFile("/proc/cpuinfo", 1 << 24).value_or(""), '\n'))
    if (line.starts_with(key) && line.find(':') != std::string::npos)
      return std::string(Trim(line.substr(line.find(':') + 1)));
  return {};
}

// The kernel's mitigation of each of the CPU's vulnerabilities.
Json MitigationsJson() {
  Json mitigations = Json::MakeObject();
  std::error_code ignored;
  const char* folder = "/sys/devices/system/cpu/vulnerabilities";
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    mitigations.Set(entry.path().filename().string(), TextOrNull(entry.path()));
  return mitigations;
}

// The limits of the cgroup that this process is in, under version 2; version 1's are in the budget.
Json CgroupJson() {
  Json cgroup = Json::MakeObject();
  const std::string membership = ReadFile("/proc/self/cgroup", 1 << 20).value_or("");
  std::string path;
  for (const std::string& line : Split(membership, '\n'))
    if (line.starts_with("0::")) path = line.substr(3);
  cgroup.Set("membership", std::string(Trim(membership)));
  for (const char* limit :
       {"cpu.max", "cpuset.cpus.effective", "cpuset.mems.effective", "memory.max", "cpu.weight"})
    cgroup.Set(limit, TextOrNull(StrCat("/sys/fs/cgroup", path, "/", limit)));
  return cgroup;
}

// Only environment variables that can change how an engine runs; others may hold secrets.
Json EnvironmentJson() {
  static constexpr const char* kPrefixes[] = {
      "OMP_",           "GOMP_",  "KMP_",    "MALLOC_", "TCMALLOC_",  "DNNL_",
      "ONEDNN_",        "HWLOC_", "PINION_", "VLLM_",   "LD_PRELOAD", "LD_LIBRARY_PATH",
      "GLIBC_TUNABLES", "MKL_",   "TORCH_",  "GGML_",   "LLAMA_"};
  Json environment = Json::MakeObject();
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const bool wanted = std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                    [&](const char* prefix) { return text.starts_with(prefix); });
    const std::string name = text.substr(0, equals);
    const bool secret = name.find("KEY") != std::string::npos ||
                        name.find("TOKEN") != std::string::npos ||
                        name.find("SECRET") != std::string::npos;
    if (wanted && !secret) environment.Set(name, text.substr(equals + 1));
  }
  return environment;
}

Json HygieneJson(int allowed_cpus) {
  const DoctorTarget target = LocalTarget(allowed_cpus);
  std::vector<Check> checks = Examine(target);
  for (Check& check : ExamineCounterChecks(target)) checks.push_back(std::move(check));
  return ToJson(checks);
}

// The files of a model's folder, or the model itself if it is a single file.
std::vector<std::filesystem::path> FilesOf(const std::string& model) {
  std::error_code error;
  if (std::filesystem::is_regular_file(model, error)) return {model};
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(model, error))
    if (entry.is_regular_file(error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool IsTokenizers(const std::string& name) {
  for (const char* prefix :
       {"tokenizer", "vocab", "merges", "chat_template", "special_tokens_map", "added_tokens"})
    if (name.starts_with(prefix)) return true;
  return false;
}

}  // namespace

Json ModelFilesJson(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nullptr;
  const std::vector<std::filesystem::path> paths = FilesOf(path);
  Json files = Json::MakeArray();
  Hash all, tokenizer;
  for (const std::filesystem::path& one_path : paths) {
    const auto file = MappedFile::Open(one_path);
    if (!file) continue;
    Hash own;
    AddFile(**file, own);
    Json one = Json::MakeObject();
    one.Set("name", one_path.filename().string());
    one.Set("bytes", static_cast<uint64_t>((*file)->size_bytes()));
    one.Set("hash", own.Text());
    const std::string line = one.Dump();
    all.Add(reinterpret_cast<const std::byte*>(line.data()), line.size());
    if (IsTokenizers(one_path.filename()))
      tokenizer.Add(reinterpret_cast<const std::byte*>(line.data()), line.size());
    files.Append(std::move(one));
  }
  return Json::Object{{"files", std::move(files)},
                      {"hash", all.Text()},
                      {"tokenizer_hash", tokenizer.Text()},
                      {"hashed", "files up to 64 MiB whole, larger ones by 64 pieces of 1 MiB"}};
}

std::string NodeName() {
  for (const char* variable : {"NODE_NAME", "SLURMD_NODENAME"})
    if (const char* name = std::getenv(variable); name && *name) return name;
  char name[256] = "";
  (void)gethostname(name, sizeof name - 1);
  return name;
}

Json Provenance(const std::string& model, const std::string& model_path, int allowed_cpus) {
  Json engine = Json::MakeObject(), compiler = Json::MakeObject();
  engine.Set("version", Version());
  engine.Set("commit", Commit());
  const Json binary = ModelFilesJson(SelfPath());
  engine.Set("binary_hash", binary.is_null() ? Json() : *binary.Find("hash"));
  compiler.Set("version", __VERSION__);
  compiler.Set("openmp", static_cast<int64_t>(_OPENMP));
  compiler.Set("standard", static_cast<int64_t>(__cplusplus));
  compiler.Set("flags", PINION_FLAGS);
  compiler.Set("libc", gnu_get_libc_version());
  Json files = ModelFilesJson(model_path);
  if (files.is_null()) files = Json::MakeObject();
  files.Set("name", model);
  Json provenance =
      Json::Object{{"engine", std::move(engine)},     {"compiler", std::move(compiler)},
                   {"model", std::move(files)},       {"kernel", KernelJson()},
                   {"microcode", MicrocodeJson()},    {"mitigations", MitigationsJson()},
                   {"cgroup", CgroupJson()},          {"node", NodeName()},
                   {"environment", EnvironmentJson()}};
  const auto xml = TopologyXml();
  provenance.Set("topology_xml", xml ? Json(*xml) : Json());
  provenance.Set("hygiene", HygieneJson(allowed_cpus));
  return provenance;
}

std::string LoadWarning(const Json& provenance) {
  const Json checks = ValueAt(provenance, {"hygiene", "checks"});
  for (const Json& check : ItemsOf(&checks))
    if (TextAt(check, "name") == "load" && TextAt(check, "state") == "warn")
      return StrCat(TextAt(check, "found"), ": ", TextAt(check, "reason"), "; ",
                    TextAt(check, "fix"));
  return "";
}

}  // namespace pinion::harness
