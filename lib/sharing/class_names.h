#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace sluice {

// Gives the same index to each class of traffic of the same name, as long as a client has the class. The indices stay
// small, since a division passes through all of them. There is one for each LinkDivider. Not thread-safe.
class ClassNames {
 public:
  size_t Take(const std::string& name) {
    const auto [found, added] = classes_.try_emplace(name);
    Class& taken = found->second;
    if (added && free_.empty()) {
      taken.index = classes_.size() - 1;
    } else if (added) {
      taken.index = free_.back();
      free_.pop_back();
    }
    ++taken.clients;
    return taken.index;
  }
  void Drop(const std::string& name) {
    const auto found = classes_.find(name);
    if (--found->second.clients > 0) return;
    free_.push_back(found->second.index);
    classes_.erase(found);
  }

 private:
  struct Class {
    size_t index = 0;
    size_t clients = 0;
  };
  std::map<std::string, Class> classes_;
  std::vector<size_t> free_;  // indices of classes that no client has
};

}  // namespace sluice
