// Command images builds the container images of the suite for `make images`, and images of its
// dependencies for `make compose` without a registry.
//
// Its steps are: build a static binary of each service for each architecture, or copy it from a
// directory; write a bill of materials for each binary as CycloneDX JSON, from the information that
// the Go toolchain records (`go version -m`); create a build context with the binaries and the CA
// bundle; and build an image per service and architecture with docker, podman or buildah, whichever
// works. It prints the size of each image. No step needs a
// network if the binaries exist.
//
// Images are named PREFIX/SERVICE:TAG. With several architectures, the tag ends with -ARCH, and
// podman and buildah also create a manifest list PREFIX/SERVICE:TAG.
package main
