# Debian packages, by `cpack --preset package` after a build of the preset package: sluice (aggregator, worker, sluice-link
# and the tools), sluice-proxy, sluice-common (the user and the sandbox of their services), and libsluice-dev.
set(packaging ${sluice_SOURCE_DIR}/deploy/packages)
set(made ${CMAKE_CURRENT_BINARY_DIR}/packages)

# Units, users and configs are for packages only: `cmake --install` into a prefix of one's own must not touch /etc.
option(SLUICE_SYSTEM_FILES "Install configs, systemd units, man pages and completion, as packages do" OFF)
if(SLUICE_SYSTEM_FILES)
  find_program(HELP2MAN help2man REQUIRED)
  find_program(GZIP gzip REQUIRED)

  # A man page and a completion for each program, both from its --help.
  function(sluice_manual program component summary)
    set(page ${made}/${program}.1.gz)
    add_custom_command(OUTPUT ${page}
      COMMAND ${HELP2MAN} --no-info --name "${summary}" --output ${made}/${program}.1 $<TARGET_FILE:${program}>
      COMMAND ${GZIP} -9 --no-name --force ${made}/${program}.1
      DEPENDS ${program} VERBATIM)
    add_custom_target(${program}_manual ALL DEPENDS ${page})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
    file(WRITE ${made}/completions/${program} "complete -F _longopt ${program}\n")
    install(FILES ${made}/completions/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
      COMPONENT ${component})
  endfunction()
  sluice_manual(sluice-proxy proxy "schedules the responses of workers for clients in any language")
  sluice_manual(sluice-aggregator programs "reads striped files from workers without TCP incast")
  sluice_manual(sluice-worker programs "serves striped files to aggregators")
  sluice_manual(sluice-link programs "shares a link among the processes of a host")
  sluice_manual(sluice-cat programs "reads a striped file")
  sluice_manual(sluice-stripe programs "stripes files over the data folders of workers")
  sluice_manual(sluice-load programs "loads an aggregator with reads")
  sluice_manual(sluice-plan programs "predicts goodput with and without a schedule")
  sluice_manual(sluice-calibrate programs "measures a link and the buffer of its switch port")
  sluice_manual(sluice-diagnose programs "tells whether a host suffers from TCP incast")

  # A unit and its config.
  function(sluice_service name component)
    install(FILES ${sluice_SOURCE_DIR}/deploy/systemd/sluice-${name}.service DESTINATION /lib/systemd/system
      COMPONENT ${component})
    install(FILES ${sluice_SOURCE_DIR}/deploy/${name}.json DESTINATION /etc/sluice COMPONENT ${component})
    set_property(GLOBAL APPEND PROPERTY sluice_units_${component} sluice-${name}.service)
    set_property(GLOBAL APPEND PROPERTY sluice_configs_${component} /etc/sluice/${name}.json)
  endfunction()
  # A unit that holds the listening sockets of a service, for operators who enable it: an upgrade does not restart it.
  function(sluice_sockets name component)
    install(FILES ${sluice_SOURCE_DIR}/deploy/systemd/sluice-${name}.socket DESTINATION /lib/systemd/system COMPONENT ${component})
    set_property(GLOBAL APPEND PROPERTY sluice_sockets_${component} sluice-${name}.socket)
  endfunction()
  # A template for a second instance at the same sockets.
  function(sluice_instances name component)
    install(FILES ${sluice_SOURCE_DIR}/deploy/systemd/sluice-${name}@.service DESTINATION /lib/systemd/system COMPONENT ${component})
    set_property(GLOBAL APPEND PROPERTY sluice_instances_${component} 'sluice-${name}@*.service')
  endfunction()
  sluice_service(proxy proxy)
  sluice_sockets(proxy proxy)
  sluice_instances(proxy proxy)
  sluice_service(aggregator programs)
  sluice_service(worker programs)
  sluice_service(link programs)
  sluice_sockets(link programs)
  install(DIRECTORY ${sluice_SOURCE_DIR}/deploy/systemd/sluice-.service.d DESTINATION /lib/systemd/system COMPONENT common)
  install(FILES ${sluice_SOURCE_DIR}/deploy/systemd/sluice.sysusers DESTINATION lib/sysusers.d RENAME sluice.conf
    COMPONENT common)

  # The files that every package of Debian has.
  execute_process(COMMAND ${GZIP} -9 --no-name --stdout ${packaging}/changelog OUTPUT_FILE ${made}/changelog.gz)
  function(sluice_package component package)
    install(FILES ${packaging}/copyright ${made}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
      COMPONENT ${component})
    string(TOUPPER ${component} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
    get_property(units GLOBAL PROPERTY sluice_units_${component})
    if(units)
      list(JOIN units " " units)
      get_property(sockets GLOBAL PROPERTY sluice_sockets_${component})
      list(JOIN sockets " " sockets)
      get_property(instances GLOBAL PROPERTY sluice_instances_${component})
      list(JOIN instances " " instances)
      foreach(script IN ITEMS postinst prerm postrm)
        configure_file(${packaging}/${script}.in ${made}/${component}/${script} @ONLY
          FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
      endforeach()
      get_property(configs GLOBAL PROPERTY sluice_configs_${component})
      list(JOIN configs "\n" configs)
      file(WRITE ${made}/${component}/conffiles "${configs}\n")
      set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA
        ${made}/${component}/postinst ${made}/${component}/prerm ${made}/${component}/postrm ${made}/${component}/conffiles
        PARENT_SCOPE)
    endif()
  endfunction()
  sluice_package(proxy sluice-proxy)
  sluice_package(programs sluice)
  sluice_package(development libsluice-dev)
  sluice_package(common sluice-common)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "the authors of Sluice")
set(CPACK_PACKAGE_CONTACT "The authors of Sluice <maintainers@users.noreply.a-seed-6c77fd15.example>")
set(CPACK_SET_DESTDIR ON)  # some files are not below the prefix
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL common programs proxy development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_COMPONENT_COMMON_DESCRIPTION "The user of the services of Sluice, and their sandbox under systemd.")
set(CPACK_DEBIAN_COMMON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_COMMON_PACKAGE_DEPENDS "systemd | systemd-sysusers")
set(CPACK_DEBIAN_COMMON_PACKAGE_CONTROL_EXTRA ${packaging}/common/postinst)

set(CPACK_COMPONENT_PROXY_DESCRIPTION "A proxy for unchanged clients.
If an aggregator asks many workers at once, their responses overflow the buffer
of the switch port in front of it, and everything waits for retransmission
timeouts. This proxy runs on the host of the aggregator and schedules the
responses of gRPC servers, and of servers of any other TCP protocol.")
set(CPACK_DEBIAN_PROXY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROXY_PACKAGE_DEPENDS "sluice-common (>= ${PROJECT_VERSION})")

set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "Servers and tools: the aggregator and the worker of striped files, sluice-link,
which shares a link among processes, and tools that plan, calibrate and diagnose
a link.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS "sluice-common (>= ${PROJECT_VERSION}), python3:any")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS "python3-matplotlib, bash-completion")

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers and static libraries, with files for CMake and pkg-config. A C++ service
that links them schedules the responses of its own fan-outs.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libabsl-dev, libboost-dev, libisal-dev, libmnl-dev, libnghttp2-dev, libprotobuf-dev, libspdlog-dev, libssl-dev, prometheus-cpp-dev, zlib1g-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS libgrpc++-dev)
include(CPack)
