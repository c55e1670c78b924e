# What `cmake --install` puts where: the client's side as targets sluice::model to sluice::blocks and sluice::sluice for all
# of them; what links gRPC in files of its own, since not every host has that; the public headers, the generated messages,
# and the programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(sluice_targets GLOBAL PROPERTY SLUICE_INSTALLED_TARGETS)
get_property(sluice_grpc_targets GLOBAL PROPERTY SLUICE_INSTALLED_GRPC_TARGETS)
get_property(sluice_programs GLOBAL PROPERTY SLUICE_INSTALLED_PROGRAMS)
list(FILTER sluice_programs INCLUDE REGEX ^sluice-)  # examples stay in the build
set(sluice_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)

function(sluice_install_targets export)
  install(TARGETS ${ARGN} EXPORT ${export}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT ${export} NAMESPACE sluice:: DESTINATION ${sluice_package_dir} FILE ${export}Targets.cmake
    COMPONENT development)
endfunction()
sluice_install_targets(sluice ${sluice_targets})
if(sluice_grpc_targets)
  sluice_install_targets(sluiceGrpc ${sluice_grpc_targets})
endif()
install(DIRECTORY ${sluice_SOURCE_DIR}/lib/include/sluice DESTINATION include COMPONENT development)
install(DIRECTORY ${sluice_BINARY_DIR}/proto/generated/sluice DESTINATION include COMPONENT development
  FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${sluice_SOURCE_DIR}/proto/sluice DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice/proto
  COMPONENT development FILES_MATCHING PATTERN "*.proto")
if(sluice_programs)
  list(REMOVE_ITEM sluice_programs sluice-proxy)
  install(TARGETS ${sluice_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  if(TARGET sluice-proxy)
    install(TARGETS sluice-proxy RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT proxy)
  endif()
  install(PROGRAMS ${sluice_SOURCE_DIR}/tools/sluice_plan/plan_plot.py
    DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME sluice-plan-plot COMPONENT programs)
endif()

configure_package_config_file(${sluice_SOURCE_DIR}/cmake/sluiceConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/sluiceConfig.cmake INSTALL_DESTINATION ${sluice_package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/sluiceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/sluiceConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/sluiceConfigVersion.cmake
  ${sluice_SOURCE_DIR}/cmake/SluiceDependencies.cmake
  ${sluice_SOURCE_DIR}/cmake/SluiceGrpc.cmake
  DESTINATION ${sluice_package_dir} COMPONENT development)

# The flags of a linker for those who do not use CMake: pkg-config --static --libs sluice.
set(sluice_archives "")
foreach(target IN LISTS sluice_targets)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    string(APPEND sluice_archives " -l${target}")
  endif()
endforeach()
file(RELATIVE_PATH sluice_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${sluice_SOURCE_DIR}/cmake/sluice.pc.in ${CMAKE_CURRENT_BINARY_DIR}/sluice.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(PROJECT_IS_TOP_LEVEL)
  include(SluicePackages)
endif()
