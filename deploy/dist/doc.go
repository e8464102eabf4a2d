// Command dist makes a release of the suite, for `make dist`: for each architecture an
// archive of the binary that holds everything, with the licences of what is inside and
// a bill of materials (SPDX 2.3), and the SHA-256 of each file.
//
// The same sources, version and Go toolchain make the same bytes: paths of this machine
// are trimmed, entries are sorted and belong to nobody, and the only time that is
// written down is SOURCE_DATE_EPOCH, else the commit's.
//
// A module without a licence ends it: what may not be given away is not.
package main
