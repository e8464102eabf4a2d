// Command images makes the container images of the suite, for `make images`, and
// those of what it needs besides, for `make compose` where no registry can be
// reached.
//
// It goes through these steps: a static binary of each service for each
// architecture, built here or taken from a folder; a bill of materials of each,
// from what the Go toolchain recorded in the binary (`go version -m`), as
// CycloneDX JSON; a build context for each, of its binaries and the CA bundle; and one
// image per service and architecture, by whichever of docker, podman and buildah
// works on this machine. An image of more than 60 MB, packed as registries keep it, is
// an error. No step needs a network when the binaries are there.
//
// An image is named PREFIX/SERVICE:TAG, with -ARCH after the tag when there are
// several architectures; then a manifest list PREFIX/SERVICE:TAG joins them, where
// the builder is podman or buildah.
package main
