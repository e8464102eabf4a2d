// Command dist creates a release of the suite, for `make dist`: for each architecture an archive of
// the binary that contains everything, with the licenses of its modules and a bill of materials
// (SPDX 2.3), the provenance of all files (in-toto, SLSA), and the SHA-256 of each file.
//
// Builds are reproducible from the same sources, version and Go toolchain: local paths are trimmed,
// entries are sorted and have no owner, and the only recorded time is SOURCE_DATE_EPOCH, or that of
// the commit.
//
// A module without a license fails the build, because it may not be distributed.
package main
