#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/doctor/checks.h"

namespace pinion::harness {

// What --apply `names` would write, and nothing else. Errors (kUsage): an unknown name, or one that
// has nothing to change, with those that have.
Result<std::vector<Change>> ChangesOf(const std::vector<Check>& checks,
                                      const std::vector<std::string>& names);

// Writes them below `root`, all or none: where one cannot be written, those before it are put back.
// Error (kIo): a file that cannot be written, with the way out.
Status ApplyChanges(const std::string& root, const std::vector<Change>& changes);

// Puts back what each was, the last one first. What is no longer as we wrote it, somebody else has
// set since: it is left alone, and the error names it; so is what cannot be written. Every other
// change is undone all the same.
Status RestoreChanges(const std::string& root, const std::vector<Change>& changes);

// The same as commands for a shell, a line each.
std::string RestoreCommands(const std::vector<Change>& changes);

// {"changes":[{"path","before","after"}]}, as a file keeps them between --apply and --restore.
// Reading it, errors (kUsage): not of that form, or a path that is not below /sys or /proc/sys.
Json ToJson(const std::vector<Change>& changes);
Result<std::vector<Change>> ReadChanges(const Json& json);

}  // namespace pinion::harness
