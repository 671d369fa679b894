#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/doctor/checks.h"

namespace pinion::harness {

// Settings that were changed, and what they were.
class AppliedChanges {
 public:
  // Writes the changes of the checks that `names` lists, all or none: where one cannot be written,
  // those before it are put back. Errors: an unknown name, or one that has nothing to change
  // (kUsage); a file that cannot be written (kIo), with the way out.
  static Result<AppliedChanges> Apply(const Patient& patient, const std::vector<Check>& checks,
                                      const std::vector<std::string>& names);

  const std::vector<Change>& changes() const { return changes_; }
  // Puts everything back; the error names what could not be.
  Status Restore();
  // The same as commands for a shell, a line each.
  std::string RestoreCommands() const;

 private:
  explicit AppliedChanges(std::string root) : root_(std::move(root)) {}
  std::string root_;
  std::vector<Change> changes_;  // in the order in which they were made
};

}  // namespace pinion::harness
