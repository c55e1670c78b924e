#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "sluice/block_reader.h"

namespace sluice {

// Returns the current reader. A change of the workers or of the reader's options replaces it. It is null until the
// first reader exists, and never again after that. Thread-safe.
using ReaderSource = std::function<std::shared_ptr<BlockReader>()>;

// A source that always returns the same reader, which must outlive its users.
inline ReaderSource SourceOf(BlockReader& reader) {
  return [&reader] { return std::shared_ptr<BlockReader>(std::shared_ptr<void>(), &reader); };
}

// Returns the stream with its reader kept alive; the reader would cancel the stream at its end.
inline std::shared_ptr<ReadStream> KeepReader(std::shared_ptr<BlockReader> reader, std::shared_ptr<ReadStream> stream) {
  using Both = std::pair<std::shared_ptr<BlockReader>, std::shared_ptr<ReadStream>>;
  ReadStream* const raw = stream.get();
  return {std::make_shared<Both>(std::move(reader), std::move(stream)), raw};
}

}  // namespace sluice
