#include "harness/store/sqlite.h"

#include <sqlite3.h>

#include "engine/base/strings.h"

namespace pinion::harness {

Error ErrorOf(const SQLite::Exception& thrown, const std::string& path) {
  switch (thrown.getErrorCode() & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::kExhausted,
              StrCat(path, " is locked by another process; wait for it or end it")};
    case SQLITE_FULL:
      return {ErrorCode::kExhausted,
              StrCat("no space left to write ", path,
                     "; make room and start again, with --resume if it holds a sweep")};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::kCorrupt, StrCat(path, " is not an intact database (", thrown.what(),
                                          "); restore it, or sweep into a new folder")};
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      return {ErrorCode::kIo, StrCat("cannot read or write ", path, ": ", thrown.what())};
    default:
      return {ErrorCode::kFailed, StrCat(path, ": ", thrown.what())};
  }
}

}  // namespace pinion::harness
