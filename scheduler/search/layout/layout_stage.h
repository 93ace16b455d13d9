// A stage as layouts and placements write it. Thread rule: a plain value.
#pragma once

namespace tessera::scheduler {

struct LayoutStage {
  int pool = 0;  // index into the problem's pools
  int width = 0;
  int layers = 0;
};

}  // namespace tessera::scheduler
