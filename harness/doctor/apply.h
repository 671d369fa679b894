#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/doctor/checks.h"

namespace pinion::harness {

// The changes that --apply `names` makes. Errors (kUsage): an unknown name, or one that
// has nothing to change; they list the names that have.
Result<std::vector<Change>> ChangesOf(const std::vector<Check>& checks,
                                      const std::vector<std::string>& names);

// Writes them below `root`, all or none: if one cannot be written, those before it are undone.
// Error (kIo): a file that cannot be written, with the way out.
Status ApplyChanges(const std::string& root, const std::vector<Change>& changes);

// Restores the old values, the last one first. A setting whose value is not the one written by
// ApplyChanges was changed by someone else: it stays, and the error names it, as it names those
// that cannot be written. All other changes are still undone.
Status RestoreChanges(const std::string& root, const std::vector<Change>& changes);

// The same as shell commands, one per line.
std::string RestoreCommands(const std::vector<Change>& changes);

// {"changes":[{"path","before","after"}]}, the file between --apply and --restore.
// Reading it, errors (kUsage): not of that form, or a path that is not below /sys or /proc/sys.
Json ToJson(const std::vector<Change>& changes);
Result<std::vector<Change>> ReadChanges(const Json& json);

}  // namespace pinion::harness
