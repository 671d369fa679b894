#pragma once

#include <CLI/CLI.hpp>
#include <type_traits>

#include "engine/base/result.h"

namespace pinion::harness {

// Each Add... declares one subcommand with its flags; when it is chosen, its callback runs it and
// sets exit_code (0 done, 1 failed, 2 bad usage). One file per command: cmd_<name>.cc.
void AddTopo(CLI::App& app, int& exit_code);
void AddDoctor(CLI::App& app, int& exit_code);      // settings that spoil measurements
void AddProbe(CLI::App& app, int& exit_code);       // this machine's limits
void AddModel(CLI::App& app, int& exit_code);       // make, info
void AddQuantize(CLI::App& model, int& exit_code);  // a subcommand of it
void AddRun(CLI::App& app, int& exit_code);
void AddRunBatch(CLI::App& app, int& exit_code);  // OpenAI's batch files
void AddScore(CLI::App& app, int& exit_code);
void AddEmbed(CLI::App& app, int& exit_code);
void AddRank(CLI::App& app, int& exit_code);
void AddTokenize(CLI::App& app, int& exit_code);
void AddBench(CLI::App& app, int& exit_code);
void AddTrial(CLI::App& app, int& exit_code);  // hidden: the child processes of a sweep
void AddServe(CLI::App& app, int& exit_code);
void AddEngineWorker(CLI::App& app, int& exit_code);  // hidden: the engine process of `serve`
void AddLoad(CLI::App& app, int& exit_code);          // a load generator for any server
void AddSweep(CLI::App& app, int& exit_code);
void AddReport(CLI::App& app, int& exit_code);   // writes a sweep's outputs again
void AddCompare(CLI::App& app, int& exit_code);  // two sweeps, for CI
void AddLaunch(CLI::App& app, int& exit_code);
void AddDescribe(CLI::App& app, int& exit_code);  // hidden: the source of man pages

// Prints "pinion: <message>" on standard error and returns the exit code for it.
int Report(const Error& error);

// The exit code of a command that returned `done`: its own, Report's, or 1 for false.
template <typename T>
int ExitCodeOf(const Result<T>& done) {
  if (!done) return Report(done.error());
  if constexpr (std::is_same_v<T, bool>) return *done ? 0 : 1;
  if constexpr (std::is_same_v<T, int>) return *done;
  return 0;
}

bool WantsColour();  // standard output does

}  // namespace pinion::harness
