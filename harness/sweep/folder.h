#pragma once

#include <string>

#include "engine/base/descriptor.h"
#include "engine/base/result.h"

namespace pinion::harness {

// A sweep's folder, held by one process at a time through a lock on FOLDER/lock.
class SweepFolder {
 public:
  // Creates the folder if it is missing. Error (kUsage) if another sweep is running in it.
  static Result<SweepFolder> Hold(const std::string& path);
  std::string Database() const { return path_ + "/results.db"; }

 private:
  SweepFolder(std::string path, Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  Descriptor lock_;
};

// Whether FOLDER already holds a sweep.
bool HoldsSweep(const std::string& folder);

// Folder in which a node's sweep continues (--continue): FOLDER, FOLDER-2, FOLDER-3 and so on, one
// for each block of the experiment. number >= 1.
std::string BlockFolder(const std::string& folder, int number);

}  // namespace pinion::harness
