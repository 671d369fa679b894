#pragma once

#include <filesystem>

namespace pinion {

// Lets a file, or the files of a folder, out of the page cache: for as long as their pages are many
// (seconds for a large model). Files that cannot be opened keep theirs. Any thread.
void DropFromPageCache(const std::filesystem::path& path);

}  // namespace pinion
