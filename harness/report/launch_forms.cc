#include "harness/report/launch_forms.h"

#include <cmath>
#include <filesystem>

#include "engine/base/strings.h"
#include "harness/profile/command.h"
#include "harness/report/recommend.h"

namespace pinion::harness {
namespace {

// The absolute paths and sizes for forms that start from another folder or after a reboot.
struct Place {
  std::string program, profile, model, cpus;
  std::string model_from_root;  // the profile's model path resolved from "/", as in a container
  std::string folder;           // the folder that the sweep's relative paths start from
  bool model_is_path = false;
  int threads = 1;
  int memory_gib = 1;
};

std::string Absolute(const std::string& path) {
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error).lexically_normal();
  return error ? path : full.string();
}

// CPUs of the ranks and the front end; empty if the ranks are not pinned.
std::string CpuListOf(const Plan& plan) {
  std::vector<int> cpus;
  for (const RankPlan& rank : plan.ranks)
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  if (!cpus.empty()) cpus.insert(cpus.end(), plan.frontend_cpus.begin(), plan.frontend_cpus.end());
  return FormatCpuList(cpus);
}

// The measured peak and a quarter more, in whole GiB.
int MemoryGib(const Candidate& candidate) {
  const Series* peak = candidate.Find("peak_rss_bytes", 0);
  if (!peak) return 1;
  return std::max(1, static_cast<int>(std::ceil(peak->estimate.median * 1.25 / std::pow(2, 30))));
}

Place PlaceOf(const Results& results, const Candidate& candidate, const std::string& objective,
              const std::string& folder) {
  Place place;
  const std::string program = ProgramOf(results, candidate);
  place.program = program.find('/') == std::string::npos ? program : Absolute(program);
  place.profile = Absolute(ProfilePath(folder, objective));
  place.model = results.model;
  place.model_is_path = std::filesystem::is_directory(results.model);
  if (place.model_is_path) place.model = Absolute(results.model);
  place.model_from_root = (std::filesystem::path("/") / results.model).lexically_normal().string();
  place.folder = Absolute(".");
  place.cpus = CpuListOf(candidate.plan);
  place.threads = std::max(1, candidate.threads);
  place.memory_gib = MemoryGib(candidate);
  return place;
}

// One word of a unit file's command line: systemd.syntax(7), systemd.service(5). Other settings
// take the rest of the line as it is, but for '%'.
std::string UnitText(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '%' ? "%%" : std::string(1, c == '\n' ? ' ' : c);
  return escaped;
}

std::string UnitWord(const std::string& word) {
  std::string quoted;
  for (const char c : UnitText(word))
    quoted += c == '$' ? "$$" : c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted.find_first_of(" \t'\"\\;") == std::string::npos ? quoted : "\"" + quoted + "\"";
}

std::string Systemd(const Place& place, const std::string& objective) {
  std::string unit =
      StrCat("# /etc/systemd/system/pinion.service\n[Unit]\nDescription=Pinion, ", objective,
             " profile of ", UnitText(place.model),
             "\nAfter=network.target\n\n[Service]\nWorkingDirectory=", UnitText(place.folder),
             "\nExecStart=", UnitWord(place.program), " launch ", UnitWord(place.profile), "\n");
  if (!place.cpus.empty()) unit += StrCat("AllowedCPUs=", place.cpus, "\n");
  return unit + StrCat("MemoryHigh=", place.memory_gib,
                       "G\nRestart=on-failure\n\n[Install]\nWantedBy=multi-user.target\n");
}

std::string Container(const Place& place) {
  std::vector<std::string> words = {"podman", "run", "--rm", "--network=host"};
  if (!place.cpus.empty()) words.push_back("--cpuset-cpus=" + place.cpus);
  words.push_back(StrCat("--memory=", place.memory_gib, "g"));
  words.push_back(StrCat("--volume=", place.profile, ":/profile.json:ro"));
  if (place.model_is_path)
    words.push_back(StrCat("--volume=", place.model, ":", place.model_from_root, ":ro"));
  words.insert(words.end(), {"pinion", "launch", "/profile.json"});
  return ShellText({{}, words});
}

std::string Slurm(const Place& place) {
  // Since 22.05 srun does not take --cpus-per-task from the job.
  return StrCat("#!/bin/bash\n#SBATCH --job-name=pinion\n#SBATCH --nodes=1 --ntasks=1\n",
                "#SBATCH --cpus-per-task=", place.threads, " --mem=", place.memory_gib,
                "G --hint=nomultithread\ncd ", ShellQuote(place.folder),
                "\nsrun --cpus-per-task=", place.threads, " --cpu-bind=cores ",
                ShellQuote(place.program), " launch ", ShellQuote(place.profile), "\n");
}

std::vector<LaunchForm> FormsOfOurs(const LaunchCommands& commands, const Place& place,
                                    const std::string& objective) {
  return {
      {"Pinion", commands.pinion, ""},
      {"vLLM", commands.vllm, LacksText("vLLM", commands.vllm_lacks)},
      {"llama.cpp", commands.llama_cpp,
       StrCat("Its -np sequences share one context (-c).",
              commands.llama_cpp_lacks.empty() ? "" : " ",
              LacksText("It", commands.llama_cpp_lacks))},
      {"systemd unit", Systemd(place, objective), ""},
      {"Container", Container(place),
       "The image: `podman build -t pinion .` in Pinion's source folder."},
      {"Slurm job", Slurm(place),
       "Slurm chooses the CPUs, and `pinion launch` plans an explicit binding again within them."}};
}

}  // namespace

std::vector<LaunchForm> LaunchForms(const Results& results, const Verdict& verdict,
                                    const std::string& folder) {
  const LaunchCommands commands = LaunchCommandsOf(results, verdict, folder);
  const Candidate* candidate = results.Find(verdict.recommended);
  std::vector<LaunchForm> forms;
  if (!commands.other.empty()) {
    forms = {{EngineOf(results, *candidate).name, commands.other, ""}};
  } else if (!commands.pinion.empty() && candidate) {
    forms = FormsOfOurs(commands, PlaceOf(results, *candidate, verdict.objective, folder),
                        verdict.objective);
  }
  return forms;
}

}  // namespace pinion::harness
