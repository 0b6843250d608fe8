// What jaxlib's MPItrampoline asks of a library before all else: the version of its names. Once in
// each of the two libraries, mpi_wrapper.cc and pod/memory/abi.cc.
#pragma once

extern "C" {

int mpiwrapper_version_major = 2, mpiwrapper_version_minor = 9, mpiwrapper_version_patch = 0;
int mpiabi_version_major = 2, mpiabi_version_minor = 9, mpiabi_version_patch = 0;
int mpiabi_loaded_version_major = 2, mpiabi_loaded_version_minor = 9,
    mpiabi_loaded_version_patch = 0;
void mpiwrapper_export_fortran_constants_() {}

}  // extern "C"
