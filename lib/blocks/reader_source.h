#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "sluice/block_reader.h"

namespace sluice {

// The reader of the moment: it is another one when the workers are others, or are to be read in another way. Null until
// there is a first one, and never again after that. Thread-safe.
using ReaderSource = std::function<std::shared_ptr<BlockReader>()>;

// Always the same reader, which outlives whoever asks for it.
inline ReaderSource SourceOf(BlockReader& reader) {
  return [&reader] { return std::shared_ptr<BlockReader>(std::shared_ptr<void>(), &reader); };
}

// The stream, and with it the reader that it was opened on, which would cancel it at its end.
inline std::shared_ptr<ReadStream> KeepReader(std::shared_ptr<BlockReader> reader, std::shared_ptr<ReadStream> stream) {
  using Both = std::pair<std::shared_ptr<BlockReader>, std::shared_ptr<ReadStream>>;
  ReadStream* const raw = stream.get();
  return {std::make_shared<Both>(std::move(reader), std::move(stream)), raw};
}

}  // namespace sluice
