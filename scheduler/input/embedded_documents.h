// Texts of the data files that are compiled in. Thread rule: constants.
#pragma once

#include <string_view>

namespace tessera::scheduler {

std::string_view DeviceCatalogueText();  // deploy/devices/catalogue.yaml
std::string_view ModelCatalogueText();   // deploy/models/models.yaml

}  // namespace tessera::scheduler
