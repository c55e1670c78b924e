# gRPC, for the servers; the client's side does without. Also read by the installed package.
find_package(gRPC 1.51 CONFIG QUIET)
