#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"

namespace pinion::harness {

// A sweep's folder, held by one process at a time through a lock on FOLDER/lock.
class SweepFolder {
 public:
  // Creates the folder if it is missing. Error (kUsage) if another sweep is running in it.
  static Result<std::unique_ptr<SweepFolder>> Hold(const std::string& path);
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;
  ~SweepFolder();

  const std::string& path() const { return path_; }
  std::string Database() const { return path_ + "/results.db"; }

 private:
  SweepFolder(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  std::string path_;
  int lock_fd_;
};

// Whether FOLDER already holds a sweep.
bool HoldsSweep(const std::string& folder);

// Where a node's sweep continues (--continue): FOLDER, FOLDER-2, FOLDER-3 and so on, one for each
// block of the experiment. number >= 1.
std::string BlockFolder(const std::string& folder, int number);

}  // namespace pinion::harness
