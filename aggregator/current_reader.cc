#include "aggregator/current_reader.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace sluice {

void CurrentReader::Replace(std::unique_ptr<BlockReader> reader) {
  const auto destroy_on_context = [&context = context_](BlockReader* last) {
    boost::asio::post(context, [owned = std::unique_ptr<BlockReader>(last)] {});
  };
  std::shared_ptr<BlockReader> shared(reader.release(), destroy_on_context);
  absl::MutexLock lock(&mutex_);
  reader_.swap(shared);
}

}  // namespace sluice
