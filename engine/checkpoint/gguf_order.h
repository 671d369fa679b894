#pragma once

#include <cstddef>

namespace pinion {

// The order in a file of a matrix's rows, or columns, that the converter has moved. From
// `first` on they are tables of lines x columns units of `unit` rows each: the model's rows go
// through a table by lines, the file's by columns. The file's tensor may hold rows of others, too:
// of every `stride` rows only `run` are this matrix's, from `offset` on.
struct GgufOrder {
  size_t first = 0, lines = 1, columns = 1, unit = 1;
  size_t offset = 0, run = 0, stride = 0;  // run 0: all rows are this matrix's

  bool is_reordered() const { return lines > 1 && columns > 1; }
  bool as_stored() const { return !is_reordered() && run == 0; }

  size_t Stored(size_t row) const {
    const size_t at = is_reordered() && row >= first ? first + InTables(row - first) : row;
    return run == 0 ? at : offset + at / run * stride + at % run;
  }

 private:
  size_t InTables(size_t row) const {
    const size_t units = lines * columns;
    const size_t table = row / unit / units, within = row / unit % units;
    const size_t stored = within % columns * lines + within / columns;
    return (table * units + stored) * unit + row % unit;
  }
};

}  // namespace pinion
