// The reader of durable files, also of one whose writer was killed.
#pragma once

#include <string>

#include "recording.h"

namespace pybench {

// Throws std::runtime_error where the file can't be read or is none of ours.
Recording read_durable_file(const std::string& path);

}  // namespace pybench
