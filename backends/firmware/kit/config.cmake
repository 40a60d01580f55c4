# find_package(@name@) gives @name@::@name@ and, for a model that calls an NPU, two drivers of which an image links one:
# tosaic::npu, which needs nothing else, or tosaic::ethosu, which hands calls to Arm's ethos-u-core-driver.
# The archives are built for @cpu@ with the float ABI `@float_abi@`.
get_filename_component(_kit "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET @name@::@name@)
  add_library(@name@::@name@ STATIC IMPORTED)
  set_target_properties(@name@::@name@ PROPERTIES
    IMPORTED_LOCATION "${_kit}/lib/lib@name@.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_kit}/include")
endif()
foreach(_driver npu ethosu)
  if(EXISTS "${_kit}/lib/libtosaic_${_driver}.a" AND NOT TARGET tosaic::${_driver})
    add_library(tosaic::${_driver} STATIC IMPORTED)
    set_target_properties(tosaic::${_driver} PROPERTIES IMPORTED_LOCATION "${_kit}/lib/libtosaic_${_driver}.a")
  endif()
endforeach()
