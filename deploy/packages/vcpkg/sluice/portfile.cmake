# A port of this checkout: vcpkg install sluice --overlay-ports=deploy/packages/vcpkg
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
message(STATUS "sluice needs libmnl, which has no port, from the system: apt-get install libmnl-dev pkg-config")
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES tools SLUICE_BUILD_APPS
  INVERTED_FEATURES grpc CMAKE_DISABLE_FIND_PACKAGE_gRPC)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${FEATURE_OPTIONS} -DSLUICE_INSTALL=ON -DSLUICE_BUILD_TESTS=OFF -DSLUICE_BUILD_BENCHMARKS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/sluice)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(AUTO_CLEAN TOOL_NAMES
    sluice-aggregator sluice-calibrate sluice-cat sluice-diagnose sluice-link sluice-load sluice-plan sluice-proxy
    sluice-stripe sluice-worker)
  file(REMOVE "${CURRENT_PACKAGES_DIR}/bin/sluice-plan-plot" "${CURRENT_PACKAGES_DIR}/debug/bin/sluice-plan-plot")
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/deploy/packages/copyright")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
