// The target that a precompiled header belongs to needs a file. See SluiceTargets.cmake.
