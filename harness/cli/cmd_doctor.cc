// `pinion doctor`: finds settings of this machine that make measurements slow or unsteady. Exit 0
// examined, 1 if a change failed or, with --strict, if there is a warning, 2 bad usage; with a
// command, the command's own exit code.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "harness/cli/commands.h"
#include "harness/cli/stop_request.h"
#include "harness/doctor/apply.h"
#include "harness/doctor/checks.h"
#include "harness/doctor/counters.h"

namespace pinion::harness {
namespace {

struct DoctorFlags {
  bool json = false, strict = false;
  std::string root = "/", undo_file = "pinion-doctor-undo.json", restore;
  std::vector<std::string> apply;
  std::vector<std::string> command;  // after --
};

Result<int> RunUnder(const std::vector<std::string>& command) {
  constexpr double kPollSeconds = 0.1, kStopSeconds = 30;
  Process::Options options;
  options.arguments = command;
  options.stdin_fd = STDIN_FILENO;
  PINION_ASSIGN(Process child, Process::Start(options));
  for (;;) {
    if (const auto exit = child.Wait(kPollSeconds))
      return exit->signal ? 128 + exit->signal : exit->code;
    if (!StopRequested()) continue;
    const Process::Exit exit = child.Stop(kStopSeconds);
    return exit.signal ? 128 + exit.signal : exit.code;
  }
}

// Writes the old values to disk before anything is changed, so that a killed process loses no
// setting.
Status KeepForRestore(const DoctorFlags& flags, const std::vector<Change>& changes) {
  if (std::filesystem::exists(flags.undo_file))
    return Fail(ErrorCode::kUsage,
                StrCat(flags.undo_file, " holds changes that were not undone yet: --restore ",
                       flags.undo_file, " first, or name another --undo-file"));
  return WriteFile(flags.undo_file, ToJson(changes).Dump(2) + "\n");
}

Status Restore(const std::string& root, const std::string& undo_file) {
  PINION_ASSIGN(const Json json, Json::ParseFile(undo_file));
  const auto changes = ReadChanges(json);
  if (!changes) return Unexpected(Error(changes.error()).In(undo_file));
  PINION_TRY(RestoreChanges(root, *changes));
  std::filesystem::remove(undo_file);
  std::cerr << "restored the changed settings\n";
  return {};
}

Result<int> Treat(const DoctorTarget& target, const std::vector<Check>& checks,
                  const DoctorFlags& flags) {
  // Settings are restored after any end but SIGKILL.
  CatchStopRequests({SIGINT, SIGTERM, SIGHUP}, false);
  PINION_ASSIGN(const std::vector<Change> changes, ChangesOf(checks, flags.apply));
  PINION_TRY(KeepForRestore(flags, changes));
  if (const Status applied = ApplyChanges(target.root, changes); !applied) {
    std::filesystem::remove(flags.undo_file);
    return Unexpected(applied.error());
  }
  for (const Change& change : changes)
    std::cerr << "applied: /" << change.path << ": " << change.before << " -> " << change.after
              << "\n";
  if (flags.command.empty()) {
    std::cout << "to undo it: pinion doctor --restore " << flags.undo_file << ", or\n"
              << RestoreCommands(changes) << std::flush;
    return 0;
  }
  Result<int> exit_code = RunUnder(flags.command);
  PINION_TRY(Restore(target.root, flags.undo_file));
  return exit_code;
}

Result<int> RunDoctor(const DoctorFlags& flags) {
  if (flags.apply.empty() && !flags.command.empty())
    return Fail(ErrorCode::kUsage, StrCat("'", flags.command.front(), "' needs to know which ",
                                          "settings to change: name them with --apply"));
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  const DoctorTarget target = LocalTarget(static_cast<int>(budget.cpus.size()), flags.root);
  if (!flags.restore.empty()) {
    PINION_TRY(Restore(target.root, flags.restore));
    return 0;
  }
  std::vector<Check> checks = Examine(target);
  for (Check& check : ExamineCounterChecks(target)) checks.push_back(std::move(check));
  if (!flags.apply.empty()) return Treat(target, checks, flags);
  std::cout << (flags.json ? ToJson(checks).Dump(2) + "\n" : Render(checks, WantsColour()))
            << std::flush;
  if (!std::cout) return Fail(ErrorCode::kIo, "cannot write to standard output");
  const bool warned = std::any_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.state == Check::State::kWarn;
  });
  return flags.strict && warned ? 1 : 0;
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DoctorFlags>();
  auto* command = app.add_subcommand(
      "doctor", "Check this machine for settings that make measurements slow or unsteady");
  command->add_flag("--json", flags->json, "print JSON instead of text");
  command->add_flag("--strict", flags->strict, "end with exit code 1 if there is a warning");
  auto* apply =
      command
          ->add_option("--apply", flags->apply,
                       "change the settings of these checks and nothing else, such as "
                       "governor,huge_pages: while the COMMAND after -- runs, or without one until "
                       "--restore")
          ->delimiter(',')
          ->expected(1)
          ->take_all();
  command
      ->add_option("--undo-file", flags->undo_file,
                   "file that --apply writes the old values to before it changes anything")
      ->needs(apply)
      ->capture_default_str();
  command
      ->add_option("--restore", flags->restore,
                   "restore the values in this file, which --apply wrote, and remove the file")
      ->check(CLI::ExistingFile)
      ->excludes(apply);
  command
      ->add_option(
          "--root", flags->root,
          "examine the tree below this folder, such as the host's / mounted into a container")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  command->add_option("COMMAND", flags->command, "after --: the command to run under --apply");
  command->footer(
      "Exit code: 0 examined, 1 if a change failed or, with --strict, if there is a warning,\n"
      "2 bad usage; with a COMMAND, its own exit code.\n"
      "  pinion doctor --apply governor,numa_balancing -- pinion sweep MODEL\n"
      "  pinion doctor --apply governor; ...; pinion doctor --restore pinion-doctor-undo.json\n");
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(RunDoctor(*flags)); });
}

}  // namespace pinion::harness
