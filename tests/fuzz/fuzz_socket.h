#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "tests/fuzz/fuzz_input.h"

namespace sluice {

// Returns the path of a Unix socket in a folder of this process, which removes the folder at its end.
inline const std::string& FuzzSocketPath() {
  struct Folder {
    std::string path = std::filesystem::temp_directory_path() / "sluice-fuzz-XXXXXX";
    std::string socket;
    Folder() {
      FUZZ_CHECK(mkdtemp(path.data()) != nullptr);
      socket = path + "/socket";
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.socket;
}

}  // namespace sluice
