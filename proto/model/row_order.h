// Where the rows of a matrix lie in the file's matrix.
#pragma once

#include <cstdint>

namespace tessera {

// Which row of the file's matrix each row is.
struct RowOrder {
  int64_t first = 0;  // of the file, where the rows begin
  // Rows belong to heads of `head` rows, which begin `stride` rows apart in the file; 0: no heads.
  int64_t head = 0;
  int64_t stride = 0;
  // In each head the `paired` rows from `unpaired` on are pairs of neighbours (2i, 2i + 1) in the
  // file, and become halves (i, i + paired / 2).
  int64_t paired = 0;
  int64_t unpaired = 0;
  // Heads are of groups: here group after group, in the file the first of all groups, then the
  // second of all; 0: in the same order.
  int64_t groups = 0;
  int64_t of_group = 0;

  int64_t FileRow(int64_t row) const {
    if (head == 0) return first + row;
    const int64_t here = row / head, half = paired / 2;
    const int64_t index = groups == 0 ? here : here % of_group * groups + here / of_group;
    const int64_t within = row % head, of_pairs = within - unpaired;
    int64_t in_file = within;
    if (of_pairs >= 0 && of_pairs < half) {
      in_file = unpaired + 2 * of_pairs;
    } else if (of_pairs >= half && of_pairs < paired) {
      in_file = unpaired + 2 * (of_pairs - half) + 1;
    }
    return first + index * stride + in_file;
  }
  // The rows follow each other in the file as well.
  bool IsRange() const {
    return head == 0 || (paired == 0 && stride == head && (groups <= 1 || of_group <= 1));
  }
};

}  // namespace tessera
